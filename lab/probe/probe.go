// Package probe asks an API server whether it is ready. In comes its URL; out
// goes nil or what it still lacks. It keeps no connection and no credentials.
package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Server asks the API server at a URL whether it is ready; nil means yes.
func Server(ctx context.Context, server string) error {
	client := &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// Only "ok" is read here; every real client checks the certificate.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		return errors.New("it is still making its roles")
	}
	return fmt.Errorf("readyz: %s: %.200s", resp.Status, bytes.TrimSpace(body))
}
