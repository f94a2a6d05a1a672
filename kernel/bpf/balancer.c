/* The eBPF mode's programs: frontends, pools and settings come in by maps that the
 * program fairway writes; connections of sockets, and packets at the node's interfaces,
 * go to endpoints. Nothing here knows a Service: every policy is decided before. */
#include "layout.h"
#include "maps.h"
#include "choose.h"
#include "tc.h"
#include "socket.h"

char _license[] SEC("license") = "Apache-2.0";
