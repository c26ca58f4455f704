// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

const (
	modulePath  = "github.com/dubbogo/graceful"
	gracefulCmd = modulePath + "/internal/rollout/cmd/graceful"
	plainCmd    = modulePath + "/internal/rollout/cmd/plain"
)

// Binaries are the programs that child processes run.
type Binaries struct {
	// Graceful imports this module, Plain is dubbo-go alone.
	Graceful, Plain string

	dir string
}

// Close removes the binaries that [Build] made.
func (b *Binaries) Close() error {
	if b == nil || b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

var built struct {
	sync.Mutex
	done *Binaries
}

// Build compiles both programs into a directory below the user's cache, once per calling process.
// The go command's own cache makes a second build quick; the working directory must be inside the
// module.
func Build(ctx context.Context) (*Binaries, error) {
	built.Lock()
	defer built.Unlock()
	if built.done != nil {
		return built.done, nil
	}
	dir, err := os.MkdirTemp("", "graceful-rollout-")
	if err != nil {
		return nil, err
	}
	b := &Binaries{Graceful: filepath.Join(dir, "graceful"), Plain: filepath.Join(dir, "plain"), dir: dir}
	err = errors.Join(build(ctx, gracefulCmd, b.Graceful), build(ctx, plainCmd, b.Plain))
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	built.done = b
	return b, nil
}

// BuildOne compiles one main package of this module to path.
func build(ctx context.Context, pkg, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
