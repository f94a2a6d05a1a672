package relay

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"fairway/lab/topology"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The Service whose address Ingress traffic goes to.
const (
	ingressNamespace = "fairway-system"
	ingressName      = "fairway-ingress"
)

// askAgain is how long an answer about the Ingress address is good.
const askAgain = time.Second

// Ingress knows where Ingress traffic enters the lab now: the address of
// Service fairway-system/fairway-ingress once it has one, else the first node.
type Ingress struct {
	client kubernetes.Interface
	family topology.Family

	mu    sync.Mutex
	host  string
	asked time.Time
}

// NewIngress makes an Ingress that asks the API server of a kubeconfig.
func NewIngress(kubeconfig string, f topology.Family) (*Ingress, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("ingress address: %w", err)
	}
	cfg.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("ingress address: %w", err)
	}
	return &Ingress{client: client, family: f, host: f.Node(1)[0].String()}, nil
}

// Target returns a function that gives the Ingress address with a port.
func (i *Ingress) Target(port int) func(context.Context) string {
	return func(ctx context.Context) string {
		return net.JoinHostPort(i.current(ctx), strconv.Itoa(port))
	}
}

// current keeps the last known address while the API server does not answer.
func (i *Ingress) current(ctx context.Context) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.asked) < askAgain {
		return i.host
	}
	i.asked = time.Now()
	svc, err := i.client.CoreV1().Services(ingressNamespace).Get(ctx, ingressName, metav1.GetOptions{})
	if err != nil {
		return i.host
	}
	i.host = i.family.Node(1)[0].String()
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			i.host = in.IP
			break
		}
	}
	return i.host
}
