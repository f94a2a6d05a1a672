package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// API follows an API server: a list and a watch per kind, the last object per key kept.
// While the server is away everything known stays; the reflectors go on trying.
type API struct {
	Config *rest.Config
	// Kinds tells which kinds to follow besides the proxy's.
	Kinds Kinds

	mu     sync.Mutex
	stores []syncer
	refs   map[reference]*single
	notify chan struct{}
	pools  *metallb
	// patience replaces refusedAfter in tests.
	patience time.Duration
	silence  time.Duration // replaces the constant in tests
	refused  *refusals
	hearing  *hearing

	core      *rest.RESTClient
	services  *store[corev1.Service, *corev1.Service]
	slices    *store[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]
	nodes     *store[corev1.Node, *corev1.Node]
	spaces    *store[corev1.Namespace, *corev1.Namespace]
	pods      *store[corev1.Pod, *corev1.Pod]
	ingresses *store[networkingv1.Ingress, *networkingv1.Ingress]
	classes   *store[networkingv1.IngressClass, *networkingv1.IngressClass]
	ranges    *store[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]
	secrets   *store[corev1.Secret, *corev1.Secret]
	configs   *store[corev1.ConfigMap, *corev1.ConfigMap]
}

// Kinds is what to follow besides Services, EndpointSlices, Nodes and ServiceCIDRs.
type Kinds struct {
	Namespaces, Pods, Ingresses, Pools bool
}

// ClientConfig reads a kubeconfig, or the service account of the Pod it runs in when
// the path is empty. server, when set, replaces the address in either: a node proxy
// must reach the API server before Services work.
func ClientConfig(kubeconfig, server string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("API server access: %w", err)
	}
	if server != "" {
		cfg.Host = server
	}
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	cfg.UserAgent = "fairway"
	cfg.QPS, cfg.Burst = 50, 100
	return cfg, nil
}

// Run follows the server until ctx ends and calls deliver, debounced, with everything
// known whenever something changed, at first when every kind has been listed once.
func (a *API) Run(ctx context.Context, deliver func(model.Objects, []model.Problem)) error {
	a.notify = make(chan struct{}, 1)
	a.refused = newRefusals(cmp.Or(a.patience, refusedAfter), a.changed)
	a.refused.hearing = newHearing(cmp.Or(a.silence, silence))
	a.mu.Lock()
	a.hearing = a.refused.hearing
	a.refs = map[reference]*single{}
	a.mu.Unlock()
	if err := a.start(ctx); err != nil {
		return err
	}
	a.waitSynced(ctx)
	if ctx.Err() != nil {
		return nil // half a list must never look like the whole
	}
	for {
		objects, problems := a.objects()
		deliver(objects, problems)
		select {
		case <-ctx.Done():
			return nil
		case <-a.notify:
		}
		// A burst (a rollout, a namespace deleted) becomes one pass.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a *API) start(ctx context.Context) error {
	core, err := client(a.Config, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	disc, err := client(a.Config, discoveryv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	net, err := client(a.Config, networkingv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	a.core = core
	a.secrets = newStore[corev1.Secret, *corev1.Secret]("secrets", a.changed)
	a.configs = newStore[corev1.ConfigMap, *corev1.ConfigMap]("configmaps", a.changed)
	a.services = follow[corev1.Service](ctx, a, core, "services")
	a.slices = follow[discoveryv1.EndpointSlice](ctx, a, disc, "endpointslices")
	a.nodes = follow[corev1.Node](ctx, a, core, "nodes")
	a.ranges = follow[networkingv1.ServiceCIDR](ctx, a, net, "servicecidrs")
	if a.Kinds.Namespaces {
		a.spaces = follow[corev1.Namespace](ctx, a, core, "namespaces")
	}
	if a.Kinds.Pods {
		a.pods = follow[corev1.Pod](ctx, a, core, "pods")
	}
	if a.Kinds.Ingresses {
		a.ingresses = follow[networkingv1.Ingress](ctx, a, net, "ingresses")
		a.classes = follow[networkingv1.IngressClass](ctx, a, net, "ingressclasses")
	}
	if a.Kinds.Pools {
		dyn, err := dynamic.NewForConfig(jsonConfig(a.Config))
		if err != nil {
			return fmt.Errorf("API client for MetalLB's kinds: %w", err)
		}
		a.pools = followMetalLB(ctx, dyn, a.refused, a.changed)
		a.stores = append(a.stores, a.pools.pools, a.pools.ads)
	}
	return nil
}

func (a *API) changed() {
	select {
	case a.notify <- struct{}{}:
	default:
	}
}

// waitSynced names what it waits for, every five seconds.
func (a *API) waitSynced(ctx context.Context) {
	for i := 0; ; i++ {
		var missing []string
		for _, s := range a.stores {
			if name, ok := s.synced(); !ok && (essential(name) || !a.refused.count(name, model.Name{})) {
				missing = append(missing, name)
			}
		}
		if len(missing) == 0 || ctx.Err() != nil {
			return
		}
		if i > 0 && i%500 == 0 {
			slog.Info("waiting for the API server", "server", a.Config.Host, "kinds", missing)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a *API) objects() (model.Objects, []model.Problem) {
	o := model.Objects{
		Services: a.services.list(), EndpointSlices: a.slices.list(), Nodes: a.nodes.list(), ServiceCIDRs: a.ranges.list(),
		Secrets: a.secrets.list(), ConfigMaps: a.configs.list(),
		Namespaces: a.spaces.list(), Pods: a.pods.list(),
		Ingresses: a.ingresses.list(), IngressClasses: a.classes.list(),
	}
	var problems []model.Problem
	o.Pools, o.L2, problems = a.pools.objects()
	return o, append(problems, a.refused.problems()...)
}

// Follow sets which Secrets and ConfigMaps are read: each is watched by its own name, so
// nothing else of those kinds ever reaches this process. It tells whether all of them
// have been read (or are known not to exist); a change is delivered when they are.
func (a *API) Follow(ctx context.Context, secrets, configMaps []model.Name) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refs == nil {
		return false // Run has not started
	}
	want := map[reference]bool{}
	for _, n := range secrets {
		want[reference{"secrets", n}] = true
	}
	for _, n := range configMaps {
		want[reference{"configmaps", n}] = true
	}
	for ref, f := range a.refs {
		if !want[ref] {
			f.stop()
			delete(a.refs, ref)
			a.forget(ref)
		}
	}
	all := true
	for ref := range want {
		if a.refs[ref] == nil {
			a.refs[ref] = a.followOne(ctx, ref)
		}
		all = all && (a.refs[ref].listed.Load() || a.refused.count(ref.resource, ref.name))
	}
	return all
}

type reference struct {
	resource string
	name     model.Name
}

func (a *API) followOne(ctx context.Context, ref reference) *single {
	ctx, stop := context.WithCancel(ctx)
	sel := fields.OneTermEqualSelector("metadata.name", ref.name.Name)
	one := &single{name: ref.name, stop: stop, notify: a.changed}
	if ref.resource == "secrets" {
		one.ReflectorStore = a.secrets
		startReflector[corev1.Secret](ctx, a.refused, a.core, ref.resource, ref.name, sel, one)
		return one
	}
	one.ReflectorStore = a.configs
	startReflector[corev1.ConfigMap](ctx, a.refused, a.core, ref.resource, ref.name, sel, one)
	return one
}

func (a *API) forget(ref reference) {
	if ref.resource == "secrets" {
		a.secrets.remove(ref.name)
		return
	}
	a.configs.remove(ref.name)
}

// jsonConfig is for custom resources, which have no protobuf form.
func jsonConfig(cfg *rest.Config) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.ContentType, c.AcceptContentTypes = "", ""
	return c
}

// client makes a REST client of one group; the whole clientset would bring every API
// group's types, informers and listers into the binary.
func client(cfg *rest.Config, gv schema.GroupVersion) (*rest.RESTClient, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	cl, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("API client for %s: %w", gv, err)
	}
	return cl, nil
}

// follow starts one reflector that writes into a store of its own; Run waits for it.
func follow[T any, P pointer[T]](ctx context.Context, a *API, c *rest.RESTClient, resource string) *store[T, P] {
	s := newStore[T, P](resource, a.changed)
	a.stores = append(a.stores, s)
	startReflector[T, P](ctx, a.refused, c, resource, model.Name{}, fields.Everything(), s)
	return s
}

// startReflector follows a whole kind, or the one object of a name.
func startReflector[T any, P pointer[T]](ctx context.Context, refused *refusals, c *rest.RESTClient, resource string, name model.Name, sel fields.Selector, into cache.ReflectorStore) {
	lw := refused.heard(cache.NewListWatchFromClient(c, resource, name.Namespace, sel), resource, name)
	r := cache.NewReflectorWithOptions(lw, P(new(T)), into, cache.ReflectorOptions{Name: resource, Backoff: retry()})
	go r.RunWithContext(ctx)
}

// Once lists everything one time.
func (a *API) Once(ctx context.Context, timeout time.Duration) (model.Objects, []model.Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type result struct {
		objects  model.Objects
		problems []model.Problem
	}
	got := make(chan result, 1)
	done := make(chan error, 1)
	go func() {
		done <- a.Run(ctx, func(o model.Objects, p []model.Problem) {
			select {
			case got <- result{o, p}:
			default:
			}
			cancel()
		})
	}()
	err := <-done
	select {
	case r := <-got:
		return r.objects, r.problems, nil
	default:
	}
	if err == nil {
		err = fmt.Errorf("no complete answer within %s", timeout)
	}
	return model.Objects{}, nil, fmt.Errorf("API server %s: %w", a.Config.Host, err)
}
