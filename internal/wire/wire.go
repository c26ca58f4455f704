// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire documents and implements every mark that this module puts on the wire.
//
// # Provider record in the registry
//
// Four parameters of a provider's URL, or of its instance metadata:
//
//	status=UP|DRAINING           what the instance says of itself; any other value is no mark
//	graceful.start=<start id>    which process this is: "<unix ms>-<16 hex>", compared for equality only
//	graceful.seq=<n>             raised by every change of status; for one start id the higher one wins
//	warmup=<time>                the instance's own warm-up window (a standard Dubbo parameter)
//
// Where a record is a node with free data (ZooKeeper and etcd, interface level), the same four travel as
// one URL-escaped "key=value&..." string, so that the record's name, and with it every consumer's
// invoker, stays as it is. See [Mark].
//
// # Response while the instance drains
//
//	graceful-status: DRAINING;id=<start id>
//
// An attachment; over Triple a trailer. See [FormatDraining].
//
// # Rejection
//
// An error whose text contains
//
//	[graceful-not-executed;id=<start id>]
//
// and, where the request said whom it is meant for, " to <ip:port>" behind it. The request was not executed by
// the process of that id. See [RejectMessage]. A process takes every such
// marker out of the errors of its own handlers ([StripMarks]), because a proxy that passes on what its
// provider said would otherwise look unexecuted itself.
//
// # Request
//
//	graceful-caller: <app>@<ip>/<start id>;to=<ip:port>
//
// Who calls, and which instance it means to call. See [Caller].
//
// A consumer believes a mark only if its start id is that of the instance the attempt went to. Where it knows no
// id (a direct URL) it believes a rejection that repeats the address to which the request was meant.
package wire

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Status is what an instance says of itself.
type Status uint8

// The statuses. The zero value means that nothing was said, as by every instance without this module.
const (
	Unknown Status = iota
	Up
	Draining
)

// String returns the form that is written on the wire; "" for Unknown.
func (s Status) String() string {
	switch s {
	case Up:
		return "UP"
	case Draining:
		return "DRAINING"
	default:
		return ""
	}
}

// ParseStatus is the inverse of [Status.String]. Any other text is no mark of ours, hence Unknown.
func ParseStatus(s string) Status {
	switch s {
	case "UP":
		return Up
	case "DRAINING":
		return Draining
	default:
		return Unknown
	}
}

// Keys of a provider record.
const (
	KeyStatus = "status"
	KeyStart  = "graceful.start"
	KeySeq    = "graceful.seq"
	KeyWarmup = "warmup"
)

// Keys of attachments.
const (
	HeaderStatus = "graceful-status" // of a response
	HeaderCaller = "graceful-caller" // of a request
)

// Limits. A start id of ours has 30 bytes; the room is for ids of later versions.
const (
	maxStart  = 64
	maxCaller = 256
)

// ErrMark is wrapped by every error of [ParseMark].
var ErrMark = errors.New("wire: not a mark")

// Mark is what a provider record says about its instance.
type Mark struct {
	Status Status
	Start  string // start id, "" for an instance without this module
	Seq    uint64 // number of the status among those of this start id; 0 if not said
	Warmup string // as written by the provider; cluster/instance knows its units
}

// Encode returns the mark as "key=value&...", URL-escaped, keys in alphabetical order. What is not said is
// left out, so the zero Mark is "".
func (m Mark) Encode() string {
	params := make(map[string]string, 4)
	m.PutInto(params)
	values := make(url.Values, len(params))
	for k, v := range params {
		values.Set(k, v)
	}
	return values.Encode()
}

// ParseMark is the inverse of [Mark.Encode]. Keys that it does not know are ignored, and so is a status
// that is none of ours: node data may belong to somebody else. An empty text is the zero Mark.
// The error wraps [ErrMark].
func ParseMark(data string) (Mark, error) {
	if data == "" {
		return Mark{}, nil
	}
	values, err := url.ParseQuery(data)
	if err != nil {
		return Mark{}, fmt.Errorf("%w: %w", ErrMark, err)
	}
	m := Mark{
		Status: ParseStatus(values.Get(KeyStatus)),
		Start:  values.Get(KeyStart),
		Warmup: values.Get(KeyWarmup),
	}
	if m.Start != "" && !ValidStart(m.Start) {
		return Mark{}, fmt.Errorf("%w: %s is %q", ErrMark, KeyStart, clip(m.Start))
	}
	if s := values.Get(KeySeq); s != "" {
		if m.Seq, err = strconv.ParseUint(s, 10, 64); err != nil {
			return Mark{}, fmt.Errorf("%w: %s is %q", ErrMark, KeySeq, clip(s))
		}
	}
	return m, nil
}

// PutInto writes the mark into registry parameters or instance metadata. What the mark does not say is
// left as it is there.
func (m Mark) PutInto(params map[string]string) {
	if s := m.Status.String(); s != "" {
		params[KeyStatus] = s
	}
	if m.Start != "" {
		params[KeyStart] = m.Start
	}
	if m.Seq != 0 {
		params[KeySeq] = strconv.FormatUint(m.Seq, 10)
	}
	if m.Warmup != "" {
		params[KeyWarmup] = m.Warmup
	}
}

// MarkFrom reads the mark out of parameters or metadata. The result tells whether any mark of OURS was
// there; warmup, which every Dubbo may publish, does not count. Values that are no marks are ignored.
func MarkFrom(get func(key string) string) (Mark, bool) {
	m := Mark{Status: ParseStatus(get(KeyStatus)), Warmup: get(KeyWarmup)}
	if s := get(KeyStart); ValidStart(s) {
		m.Start = s
	}
	if s := get(KeySeq); s != "" {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			m.Seq = n
		}
	}
	return m, m.Status != Unknown || m.Start != "" || m.Seq != 0
}

// Keys returns the keys that a consumer takes out of a provider URL before it hands the URL on, so that a
// change of them rebuilds no invoker. A status that is none of ours stays: see [IsMark].
func Keys() []string { return []string{KeyStatus, KeyStart, KeySeq} }

// IsMark tells whether the parameter key=value of a provider URL is a mark of ours, to be taken out.
func IsMark(key, value string) bool {
	switch key {
	case KeyStatus:
		return ParseStatus(value) != Unknown
	case KeyStart, KeySeq:
		return true
	default:
		return false
	}
}

// NewStartID returns a fresh start id, "<unix ms>-<16 hex>": a process that started at now. The random half
// makes it unique; the time serves only consumers that start later than the process.
func NewStartID(now time.Time) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return strconv.FormatInt(max(now.UnixMilli(), 0), 10) + "-" + hex.EncodeToString(b[:])
}

// ValidStart tells whether id can be a start id: 1 to 64 letters, digits, and "-._".
func ValidStart(id string) bool {
	if id == "" || len(id) > maxStart {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// StartTime returns the start time that an id announces, by the clock of the process that made it.
func StartTime(id string) (time.Time, bool) {
	ms, _, ok := strings.Cut(id, "-")
	if !ok {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(n), true
}

const drainingPrefix = "DRAINING;id="

// FormatDraining returns the value of [HeaderStatus] of a process that drains.
func FormatDraining(start string) string { return drainingPrefix + start }

// ParseDraining is the inverse of [FormatDraining].
func ParseDraining(v string) (start string, ok bool) {
	start, ok = strings.CutPrefix(v, drainingPrefix)
	if !ok || !ValidStart(start) {
		return "", false
	}
	return start, true
}

// Caller is who sends a request, and to whom.
type Caller struct {
	App   string // application name
	IP    string
	Start string // start id of the calling process
	To    string // "ip:port" of the instance that the request is meant for
}

// Format returns the value of [HeaderCaller]: visible ASCII, at most 256 bytes. Bytes of the application
// name that are not visible ASCII are escaped as %XX, control characters become "_", and a name for which
// there is no room is cut. The other fields are short by nature; where one is not valid it is left empty,
// and the provider will not know the caller.
func (c Caller) Format() string {
	ip, start, to := c.IP, c.Start, c.To
	if !plain(ip) {
		ip = ""
	}
	if !ValidStart(start) {
		start = ""
	}
	if !plain(to) {
		to = ""
	}
	tail := "@" + ip + "/" + start + ";to=" + to
	var b strings.Builder
	b.Grow(min(maxCaller, len(c.App)+len(tail)))
	room := maxCaller - len(tail)
	for _, r := range c.App {
		var piece string
		switch {
		case r == utf8.RuneError || unicode.IsControl(r):
			piece = "_"
		case r > ' ' && r < 0x7f && r != '%':
			piece = string(r)
		default:
			piece = escape(string(r))
		}
		if len(piece) > room {
			break
		}
		room -= len(piece)
		b.WriteString(piece)
	}
	b.WriteString(tail)
	return b.String()
}

// ParseCaller is the inverse of [Caller.Format]. A value that Format cannot have written is refused, as
// its parts end in logs and labels.
func ParseCaller(v string) (Caller, bool) {
	if len(v) > maxCaller {
		return Caller{}, false
	}
	for i := range len(v) {
		if v[i] <= ' ' || v[i] >= 0x7f {
			return Caller{}, false
		}
	}
	// From the right, since only the application name may contain the separators.
	i := strings.LastIndex(v, ";to=")
	if i < 0 {
		return Caller{}, false
	}
	c := Caller{To: v[i+len(";to="):]}
	v = v[:i]
	if i = strings.LastIndexByte(v, '/'); i < 0 {
		return Caller{}, false
	}
	c.Start = v[i+1:]
	v = v[:i]
	if i = strings.LastIndexByte(v, '@'); i < 0 {
		return Caller{}, false
	}
	c.IP = v[i+1:]
	if !ValidStart(c.Start) || c.IP != "" && !plain(c.IP) || c.To != "" && !plain(c.To) {
		return Caller{}, false
	}
	app, err := url.PathUnescape(v[:i])
	if err != nil || !utf8.ValidString(app) || strings.ContainsFunc(app, unicode.IsControl) {
		return Caller{}, false
	}
	c.App = app
	return c, true
}

// plain tells whether s can be an address: short visible ASCII without the separators of a caller.
func plain(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ', c >= 0x7f, c == '@', c == '/', c == ';', c == '%':
			return false
		}
	}
	return true
}

func escape(s string) string {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, 3*len(s))
	for i := range len(s) {
		b = append(b, '%', digits[s[i]>>4], digits[s[i]&15])
	}
	return string(b)
}

const (
	rejectOpen  = "[graceful-not-executed;id="
	rejectClose = ']'
	rejectTo    = " to "
	rejectText  = "instance is draining, the request was not executed"
)

// RejectMessage returns the text of a rejection by the process start. It contains the marker that
// [ParseReject] finds, whatever a protocol puts around it.
func RejectMessage(start string) string {
	return rejectText + " " + rejectOpen + start + string(rejectClose)
}

// RejectMessageTo is RejectMessage for a request that was meant for the address to, and came to it.
func RejectMessageTo(start, to string) string {
	if !plain(to) {
		return RejectMessage(start)
	}
	return RejectMessage(start) + rejectTo + to
}

// ParseRejectTo returns the address that the first marker in an error text repeats.
func ParseRejectTo(msg string) (to string, ok bool) {
	start, ok := ParseReject(msg)
	if !ok {
		return "", false
	}
	marker := rejectOpen + start + string(rejectClose) + rejectTo
	i := strings.Index(msg, marker)
	if i < 0 {
		return "", false
	}
	to = msg[i+len(marker):]
	if end := strings.IndexFunc(to, func(r rune) bool { return r >= 0x7f || !plain(string(r)) }); end >= 0 {
		to = to[:end]
	}
	return to, plain(to)
}

// ParseReject finds the first marker in an error text and returns its start id.
func ParseReject(msg string) (start string, ok bool) {
	for {
		i := strings.Index(msg, rejectOpen)
		if i < 0 {
			return "", false
		}
		msg = msg[i+len(rejectOpen):]
		j := strings.IndexByte(msg, rejectClose)
		if j < 0 {
			return "", false
		}
		if ValidStart(msg[:j]) {
			return msg[:j], true
		}
	}
}

// StripMarks takes every marker out of an error text that is passed on, and the blank before it. What
// remains holds no marker, also where one was nested in another.
func StripMarks(msg string) string {
	if !strings.Contains(msg, rejectOpen) {
		return msg
	}
	out := make([]byte, 0, len(msg))
	for i := range len(msg) {
		out = append(out, msg[i])
		if msg[i] != rejectClose {
			continue
		}
		// No start id contains a bracket, so the marker that ends here begins at the last one before.
		from := max(0, len(out)-len(rejectOpen)-maxStart-1)
		open := strings.LastIndexByte(string(out[from:len(out)-1]), '[')
		if open < 0 {
			continue
		}
		text := string(out[from+open : len(out)-1])
		if id, ok := strings.CutPrefix(text, rejectOpen); ok && ValidStart(id) {
			out = out[:from+open]
			if n := len(out); n > 0 && out[n-1] == ' ' {
				out = out[:n-1]
			}
		}
	}
	return string(out)
}

// clip keeps foreign text in an error short.
func clip(s string) string {
	if len(s) > maxStart {
		return s[:maxStart]
	}
	return s
}
