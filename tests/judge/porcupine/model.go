package main

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/anishathalye/porcupine"
)

const unplaced = -1

// A step is one operation on a ledger, with its result.
type step struct {
	id     string
	kind   string // append (of one entry), read, absent, lac, look, close, recover, end
	handle int
	known  bool // whether the client knew the outcome
	first  int64
	values []string
	last   int64
	closed bool
}

func (s step) String() string {
	name := fmt.Sprintf("%s %s", s.id, s.kind)
	switch s.kind {
	case "append", "read", "absent":
		name += fmt.Sprintf(" from entry %d %v", s.first, s.values)
	default:
		name += fmt.Sprintf(" last %d, closed %v", s.last, s.closed)
	}
	if !s.known {
		name += ", outcome unknown"
	}
	return name
}

// A ledger is a log that one writer appends to until it is closed.
type ledger struct {
	entries []string
	chain   uint64 // hash of all entries
	closed  bool
	seen    []int64 // for each handle, the last entry that a read or a LAC showed it
}

func (l ledger) last() int64 { return int64(len(l.entries)) - 1 }

func (l ledger) seenBy(handle int) int64 {
	if handle < len(l.seen) {
		return l.seen[handle]
	}
	return -1
}

// shows returns the ledger after a handle was shown that an entry is confirmed.
func (l ledger) shows(handle int, entry int64) ledger {
	if entry <= l.seenBy(handle) {
		return l
	}
	seen := slices.Clone(l.seen)
	for len(seen) <= handle {
		seen = append(seen, -1)
	}
	seen[handle] = entry
	l.seen = seen
	return l
}

func (l ledger) with(value string) ledger {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", l.chain, value)
	l.entries = append(slices.Clip(l.entries), value) // copied: other branches of the search keep theirs
	l.chain = hash.Sum64()
	return l
}

func (l ledger) after(s step) (bool, ledger) {
	switch s.kind {
	case "append":
		return l.appended(s)
	case "read":
		end := s.first + int64(len(s.values))
		ok := end <= l.last()+1 && slices.Equal(l.entries[s.first:end], s.values)
		return ok, l.shows(s.handle, end-1)
	case "absent": // of an open ledger only what the handle was shown is promised
		return s.first > l.seenBy(s.handle) && (!s.closed || l.closed && s.first > l.last()), l
	case "lac":
		ok := s.last >= l.seenBy(s.handle) && s.last <= l.last()
		return ok && (!s.closed || l.closed && s.last == l.last()), l.shows(s.handle, s.last)
	case "look":
		return s.closed == l.closed && (!s.closed || s.last == l.last()), l
	case "close", "recover":
		ok := !s.known || s.last == l.last()
		l.closed = true
		return ok, l
	case "end":
		l.closed = true
		return true, l
	}
	panic("a kind that readLines refuses")
}

// appended places one append. An unknown one takes effect when the ledger has reached its entry id,
// or is placed where it cannot take effect any more.
func (l ledger) appended(s step) (bool, ledger) {
	isNext := s.first == unplaced || s.first == l.last()+1
	if !l.closed && isNext {
		return true, l.with(s.values[0])
	}
	return !s.known && (l.closed || s.first <= l.last()), l
}

var model = porcupine.Model{
	Init: func() interface{} { return ledger{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		ok, after := state.(ledger).after(input.(step))
		return ok, after
	},
	// What handles have seen follows from the steps that were placed, which are compared too.
	Equal: func(one, other interface{}) bool {
		a, b := one.(ledger), other.(ledger)
		return a.closed == b.closed && a.chain == b.chain && slices.Equal(a.entries, b.entries)
	},
	Hash: func(state interface{}) uint64 {
		l := state.(ledger)
		if l.closed {
			return l.chain ^ 1
		}
		return l.chain
	},
	DescribeOperation: func(input, _ interface{}) string { return input.(step).String() },
}
