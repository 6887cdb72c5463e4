package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"

	"github.com/anishathalye/porcupine"
)

const lineBytesMax = 16 << 20
const never = math.MaxInt64

// A line of a history; README.md of the folder above describes the fields.
type line struct {
	ID        string   `json:"id"`
	Client    string   `json:"client"`
	Handle    string   `json:"handle"`
	Operation string   `json:"operation"`
	Ledger    int64    `json:"ledger"`
	First     *int64   `json:"first"`
	Values    []string `json:"values"`
	Confirmed int      `json:"confirmed"`
	Last      int64    `json:"last"`
	Closed    bool     `json:"closed"`
	Start     int64    `json:"start_ns"`
	End       *int64   `json:"end_ns"`
	Outcome   string   `json:"outcome"`
}

// readLines returns the last line of each operation, in the order of the first ones.
func readLines(path string) ([]line, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	places := make(map[string]int)
	var lines []line
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<16), lineBytesMax)
	for number := 1; scanner.Scan(); number++ {
		var read line
		decoder := json.NewDecoder(bytes.NewReader(scanner.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&read); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		if err := read.check(); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		if place, ok := places[read.ID]; ok {
			lines[place] = read
		} else {
			places[read.ID] = len(lines)
			lines = append(lines, read)
		}
	}
	return lines, scanner.Err()
}

func (l line) check() error {
	switch l.Outcome {
	case "ok":
		if l.End == nil || *l.End < l.Start {
			return fmt.Errorf("operation %q is ok and does not end after its start", l.ID)
		}
	case "fail", "unknown":
	default:
		return fmt.Errorf("outcome %q of operation %q: use ok, fail or unknown", l.Outcome, l.ID)
	}
	switch l.Operation {
	case "create", "append", "lac", "look", "close", "recover":
	case "read", "absent":
		if l.First == nil {
			return fmt.Errorf("operation %q has no first entry", l.ID)
		}
	default:
		return fmt.Errorf("operation %q is of the unknown kind %q", l.ID, l.Operation)
	}
	if l.ID == "" || l.Operation == "append" && l.Outcome == "ok" && l.First == nil {
		return fmt.Errorf("operation %q lacks its id or its first entry", l.ID)
	}
	return nil
}

// histories returns the operations of each ledger, and the ledgers in order.
func histories(lines []line) (map[int64][]porcupine.Operation, []int64) {
	found := make(map[int64][]porcupine.Operation)
	handles := make(map[int64]map[string]int)
	clients := make(map[string]int)
	for _, each := range lines {
		if handles[each.Ledger] == nil {
			handles[each.Ledger] = make(map[string]int)
		}
		handle := numberOf(handles[each.Ledger], each.Handle)
		for _, step := range each.steps(handle) {
			step.ClientId = numberOf(clients, each.Client)
			found[each.Ledger] = append(found[each.Ledger], step)
		}
	}
	var ledgers []int64
	for ledger, operations := range found {
		ledgers = append(ledgers, ledger)
		end := operations[0].Call
		for _, each := range operations {
			end = max(end, each.Call)
			if each.Return != never {
				end = max(end, each.Return)
			}
		}
		// From here on nothing takes effect: what never took effect is placed behind it.
		operations = append(operations, porcupine.Operation{
			Input: step{kind: "end"}, Call: end + 1, Return: never,
		})
		found[ledger] = operations
	}
	sort.Slice(ledgers, func(a, b int) bool { return ledgers[a] < ledgers[b] })
	return found, ledgers
}

func numberOf(numbers map[string]int, name string) int {
	if _, ok := numbers[name]; !ok {
		numbers[name] = len(numbers)
	}
	return numbers[name]
}

// steps returns what the model is to judge: an append of several entries is one step for each.
func (l line) steps(handle int) []porcupine.Operation {
	changes := l.Operation == "append" || l.Operation == "close" || l.Operation == "recover"
	if l.Operation == "create" || l.Outcome == "fail" || l.Outcome == "unknown" && !changes {
		return nil
	}
	whole := step{
		id: l.ID, kind: l.Operation, handle: handle, known: l.Outcome == "ok",
		first: unplaced, values: l.Values, last: l.Last, closed: l.Closed,
	}
	if l.First != nil {
		whole.first = *l.First
	}
	end := int64(never)
	if l.End != nil {
		end = *l.End
	}
	if l.Operation != "append" {
		return []porcupine.Operation{operation(whole, l.Start, end)}
	}
	var all []porcupine.Operation
	for place, value := range l.Values {
		one := whole
		one.values = []string{value}
		one.known = whole.known || place < l.Confirmed
		if whole.first != unplaced {
			one.first = whole.first + int64(place)
		}
		all = append(all, operation(one, l.Start, end))
	}
	return all
}

// operation returns a step with its interval; a step of unknown outcome can take effect at any time.
func operation(one step, start, end int64) porcupine.Operation {
	if !one.known {
		end = never
	}
	return porcupine.Operation{Input: one, Call: start, Return: end}
}
