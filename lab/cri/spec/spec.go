// Package spec is the vocabulary between the container runtime and cinit, the small program that becomes every
// container, exec and sandbox process. In comes what the runtime decided; out goes one JSON document on file descriptor
// 3 and the answers cinit sends back on the same socket. It decides nothing and touches no file.
package spec

// Mode says what cinit is to become.
type Mode string

// The three things cinit can become.
const (
	Run     Mode = "run"     // the first process of a container: builds the root, then executes Argv
	Exec    Mode = "exec"    // one more process in a running container: joins it, then executes Argv
	Sandbox Mode = "sandbox" // the process that holds a Pod's namespaces: stays until it is killed
)

// File descriptors that cinit finds open.
const (
	TalkFD = 3 // stream socket: Spec in, Answers out, closed by a successful execve
	JoinFD = 4 // pidfd of the process whose namespaces are joined
)

// Spec is everything cinit needs to know.
type Spec struct {
	Mode       Mode
	Argv       []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Cwd        string   `json:",omitempty"`
	UID, GID   int
	Groups     []int  `json:",omitempty"`
	Caps       uint64 // bounding set to keep, one bit per capability number
	NoNewPrivs bool
	TTY        bool
	Join       int               // CLONE_NEW* flags of the namespaces to take from JoinFD
	Hostname   string            `json:",omitempty"` // Sandbox: set when not empty
	Sysctls    map[string]string `json:",omitempty"` // Sandbox: dotted names, written in its namespaces
	Quiet      []string          `json:",omitempty"` // Sandbox: names in Sysctls that the kernel may lack
	Root       *Root             `json:",omitempty"` // Run and Sandbox
}

// Root describes the file system of a container.
type Root struct {
	Scratch    string // existing directory that cinit mounts its tmpfs over, seen by no one else
	Tools      bool   // show the machine's /usr, read below and written above
	ReadOnly   bool   // the whole root, volumes apart
	Privileged bool   // writable /sys, all devices
	Files      []File
	Mounts     []Mount
	Shm        string   // directory that becomes /dev/shm
	Masked     []string // paths hidden from the container
	Locked     []string // paths made read-only
}

// File is a small file, link or directory of the image, made before the volumes are placed.
type File struct {
	Path string // absolute
	Text string `json:",omitempty"`
	Link string `json:",omitempty"` // when set, a symbolic link to it
	Dir  bool   `json:",omitempty"`
}

// Mount is a file or directory of the node placed into the container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	Recursive      bool // read-only below too
	Propagation    Propagation
}

// Propagation is the direction in which later mounts travel.
type Propagation int

// As in MountPropagation of the CRI.
const (
	Private Propagation = iota
	FromHost
	Both
)

// Answer is one line that cinit sends back.
type Answer struct {
	Error string `json:",omitempty"`
	TTY   bool   `json:",omitempty"` // the terminal's master side comes with this line
	Ready bool   `json:",omitempty"` // Sandbox: all set, staying
}
