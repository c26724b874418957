//go:build tools

// Package kubernetes names the programs to build, so that go.mod and go.sum hold what they need.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
