// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	//go:embed zookeeper.pom.xml
	zookeeperPOM []byte
	//go:embed nacos.pom.xml
	nacosPOM []byte
)

// ErrNoJava says that a Java server was asked for on a machine without java or mvn.
var ErrNoJava = errors.New("ZooKeeper and Nacos need java (17 or later) and mvn on the PATH " +
	"(Debian: apt-get install default-jdk-headless maven); set GRACEFUL_TEST_SKIP to leave a registry out knowingly")

// classPath resolves the class path of a pom through Maven and keeps the answer in the user's cache
// directory. Several test processes may ask at once, so the resolution holds a file lock.
func classPath(ctx context.Context, name string, pom []byte) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s not found: %w", tool, ErrNoJava)
		}
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(base, "dubbogo-graceful", name+"-"+hex.EncodeToString(sum[:6]))
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("class path of %s: %w", name, err)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("class path of %s: %w", name, err)
	}
	defer unlock()

	answer := filepath.Join(dir, "classpath")
	if known, readErr := os.ReadFile(answer); readErr == nil && allExist(string(known)) {
		return string(known), nil
	}
	pomFile := filepath.Join(dir, "pom.xml")
	if err = os.WriteFile(pomFile, pom, 0o644); err != nil {
		return "", fmt.Errorf("class path of %s: %w", name, err)
	}
	mvn := exec.CommandContext(ctx, "mvn", "-B", "-q", "-f", pomFile,
		"dependency:build-classpath", "-Dmdep.outputFile="+answer)
	if out, runErr := mvn.CombinedOutput(); runErr != nil {
		return "", fmt.Errorf("class path of %s: mvn: %w\n%s", name, runErr, out)
	}
	found, err := os.ReadFile(answer)
	if err != nil {
		return "", fmt.Errorf("class path of %s: %w", name, err)
	}
	return string(found), nil
}

func allExist(path string) bool {
	for _, jar := range strings.Split(path, string(os.PathListSeparator)) {
		if _, err := os.Stat(jar); err != nil {
			return false
		}
	}
	return path != ""
}

func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}
