package cri

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"fairway/lab/images"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// describe is an image as the CRI lists it; its reference is its id, for there is nothing to digest.
func describe(ref string, image images.Image) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: ref, RepoTags: []string{ref}, Size: 1, Uid: &runtimeapi.Int64Value{Value: int64(image.UID)},
		Spec: &runtimeapi.ImageSpec{Image: ref}, Pinned: image.Local,
	}
}

func (s *server) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := req.GetImage().GetImage()
	if _, err := s.cfg.Images.Find(ref); err != nil {
		code := codes.Unknown
		if errors.Is(err, images.ErrNoImage) {
			code = codes.NotFound
		}
		return nil, status.Error(code, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulled[ref] = time.Now()
	return &runtimeapi.PullImageResponse{ImageRef: ref}, nil
}

func (s *server) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	ref := req.GetImage().GetImage()
	image, err := s.cfg.Images.Find(ref)
	if err != nil {
		return &runtimeapi.ImageStatusResponse{}, nil // absent; the pull will say why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pulled[ref]; !ok && !image.Local {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: describe(ref, image)}, nil
}

func (s *server) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	s.mu.Lock()
	var refs []string
	for ref := range s.pulled {
		refs = append(refs, ref)
	}
	s.mu.Unlock()
	slices.Sort(refs)
	want := req.GetFilter().GetImage().GetImage()
	resp := &runtimeapi.ListImagesResponse{}
	for _, ref := range refs {
		image, err := s.cfg.Images.Find(ref)
		if err == nil && (want == "" || want == ref) {
			resp.Images = append(resp.Images, describe(ref, image))
		}
	}
	return resp, nil
}

func (s *server) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pulled, req.GetImage().GetImage())
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo shows the file system that the state directory is on; images themselves take no room.
func (s *server) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	if _, err := os.Stat(s.cfg.StateDir); err != nil {
		return nil, err
	}
	usage := &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.cfg.StateDir},
		UsedBytes:  &runtimeapi.UInt64Value{},
		InodesUsed: &runtimeapi.UInt64Value{},
	}
	list := []*runtimeapi.FilesystemUsage{usage}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: list, ContainerFilesystems: list}, nil
}
