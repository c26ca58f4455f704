// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Ledger is where a process writes down which requests its handler took up and which it finished.
// Each mark is one write to a file opened with O_APPEND, so that after SIGKILL the file holds
// every mark made before, whole.
type Ledger struct {
	f *os.File
}

// LedgerPath is the file of a process in dir.
func LedgerPath(dir, name string) string { return filepath.Join(dir, name+".ledger") }

// OpenLedger appends to the file at path, which it makes if it is not there.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Ledger{f: f}, nil
}

// Start marks that the handler took a request up.
func (l *Ledger) Start(id string) { l.mark("start", id, "") }

// End marks that the handler is through with it, whatever came out.
func (l *Ledger) End(id string) { l.mark("end", id, "") }

// Try marks that the handler sends a request for id to addr.
func (l *Ledger) Try(id, addr string) { l.mark("try", id, addr) }

func (l *Ledger) mark(what, id, addr string) {
	if l == nil {
		return
	}
	b := make([]byte, 0, 96)
	b = append(b, what...)
	b = append(b, ' ')
	b = append(b, id...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
	if addr != "" {
		b = append(b, ' ')
		b = append(b, addr...)
	}
	b = append(b, '\n')
	if _, err := l.f.Write(b); err != nil {
		// A mark that is missing would make the proof wrong without anyone knowing.
		panic(fmt.Sprintf("ledger: %v", err))
	}
}

// Close closes the file.
func (l *Ledger) Close() error {
	if l == nil {
		return nil
	}
	return l.f.Close()
}

// Entry is what one process wrote down about one execution of its handler.
type Entry struct {
	ID    string
	Start time.Time
	// End is zero if the process was gone, or still busy, before the handler was through.
	End time.Time
	// Tried lists the addresses that the handler sent requests to, in order.
	Tried []Try
}

// Try is one attempt of a handler at an address.
type Try struct {
	Addr string
	At   time.Time
}

// ReadLedger reads the file of a process, entries in the order of their starts. A file that was
// never made is an empty ledger.
func ReadLedger(path string) ([]*Entry, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var (
		all  []*Entry
		open = map[string][]*Entry{} // executions of one id that have not ended, oldest first
	)
	in := bufio.NewScanner(f)
	for line := 1; in.Scan(); line++ {
		p := strings.Fields(in.Text())
		if len(p) < 3 {
			return nil, fmt.Errorf("%s:%d: %q is no mark", path, line, in.Text())
		}
		ns, err := strconv.ParseInt(p[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		at, id := time.Unix(0, ns), p[1]
		switch p[0] {
		case "start":
			e := &Entry{ID: id, Start: at}
			all = append(all, e)
			open[id] = append(open[id], e)
		case "try":
			if q := open[id]; len(q) > 0 && len(p) == 4 {
				e := q[len(q)-1]
				e.Tried = append(e.Tried, Try{Addr: p[3], At: at})
			}
		case "end":
			q := open[id]
			if len(q) == 0 {
				return nil, fmt.Errorf("%s:%d: end of %s without a start", path, line, id)
			}
			q[0].End = at
			if open[id] = q[1:]; len(q) == 1 {
				delete(open, id)
			}
		default:
			return nil, fmt.Errorf("%s:%d: %q is no mark", path, line, p[0])
		}
	}
	return all, in.Err()
}
