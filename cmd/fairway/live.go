package main

import (
	"context"
	"fmt"
	"time"

	"fairway/ingress"
	"fairway/kube"
	"fairway/model"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fromServer reads every object one time, and the Secrets the Ingresses name. Whether
// the server answers at all is asked first: reflectors only try again, and say nothing.
func (s *source) fromServer(ctx context.Context, cfg config, kinds kube.Kinds) (model.Objects, []model.Problem, error) {
	rest, err := kube.ClientConfig(s.kubeconfig, s.server)
	if err != nil {
		return model.Objects{}, nil, err
	}
	clients, err := newClients(rest)
	if err != nil {
		return model.Objects{}, nil, err
	}
	err = clients.core.RESTClient().Get().AbsPath("/version").Timeout(5 * time.Second).Do(ctx).Error()
	if err != nil && !apierrors.IsForbidden(err) {
		return model.Objects{}, nil, fmt.Errorf("API server %s: %w", rest.Host, err)
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
