package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"fairway/ingress"
	"fairway/kube"
	"fairway/model"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fromServer reads every object one time, and the Secrets the Ingresses name.
func (s *source) fromServer(ctx context.Context, cfg config, kinds kube.Kinds) (model.Objects, []model.Problem, error) {
	rest, err := kube.ClientConfig(s.kubeconfig, s.server)
	if err != nil {
		return model.Objects{}, nil, err
	}
	s.apiServers = apiServers(rest.Host)
	clients, err := newClients(rest)
	if err != nil {
		return model.Objects{}, nil, err
	}
	s.clients = clients
	if err := mayList(ctx, clients, rest.Host, kinds); err != nil {
		return model.Objects{}, nil, err
	}
	objects, problems, err := (&kube.API{Config: rest, Kinds: kinds}).Once(ctx, 15*time.Second)
	if err != nil {
		return model.Objects{}, nil, err
	}
	snap, _ := model.Build(nil, objects)
	table, _ := ingress.Build(nil, snap, cfg.ingress())
	for _, ref := range table.SecretRefs() {
		secret, err := clients.core.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			objects.Secrets = append(objects.Secrets, secret)
		case !apierrors.IsNotFound(err):
			problems = append(problems, model.Problem{Object: model.Ref{Kind: "Secret", Name: ref}, Reason: "SecretNotRead",
				Message: "counts as missing in this answer: " + err.Error()})
		}
	}
	return objects, problems, nil
}

// mayList asks for one object of every kind first: reflectors only try again, where a
// person wants to know at once that the server is away or does not allow it.
func mayList(ctx context.Context, clients *clients, host string, kinds kube.Kinds) error {
	paths := []string{"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes"}
	for p, wanted := range map[string]bool{
		"/api/v1/namespaces": kinds.Namespaces, "/api/v1/pods": kinds.Pods,
		"/apis/networking.k8s.io/v1/ingresses": kinds.Ingresses, "/apis/networking.k8s.io/v1/ingressclasses": kinds.Ingresses,
		"/apis/metallb.io/v1beta1/ipaddresspools": kinds.Pools, "/apis/metallb.io/v1beta1/l2advertisements": kinds.Pools,
	} {
		if wanted {
			paths = append(paths, p)
		}
	}
	var refused []string
	for _, p := range paths {
		err := clients.core.RESTClient().Get().AbsPath(p).Param("limit", "1").Timeout(5*time.Second).
			SetHeader("Accept", "application/json").Do(ctx).Error()
		switch {
		case apierrors.IsForbidden(err):
			refused = append(refused, path.Base(p))
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("API server %s: %w", host, err)
		}
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		return fmt.Errorf("API server %s: this account may not list %s in all namespaces (or use files: kubectl get … -o yaml | fairway … -f -)",
			host, strings.Join(refused, ", "))
	}
	return nil
}
