// Command porcupine checks whether histories of ledgers are linearizable, with the checker of that
// name. It prints one JSON object. The exit status is 0 if every ledger's history is linearizable, 1 if
// one is not, 3 if the search for one took too long, and 2 if the histories are not readable.
//
// The format and the model are described in README.md of the folder above.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	statusIllegal    = 1
	statusUnreadable = 2
	statusUndecided  = 3
	stepsShownMax    = 5
)

type illegal struct {
	Ledger    int64    `json:"ledger"`
	Steps     int      `json:"steps"`
	Placed    int      `json:"placed"`
	NotPlaced []string `json:"not_placed"` // the first steps that no order has room for
}

type report struct {
	Operations int       `json:"operations"`
	Unknown    int       `json:"unknown_operations"`
	Ledgers    int       `json:"ledgers"`
	Steps      int       `json:"steps"`
	StepsMax   int       `json:"steps_max"`
	Illegal    []illegal `json:"illegal"`
	Undecided  []int64   `json:"undecided"`
	SlowestMs  int64     `json:"slowest_ms"`
	Seconds    float64   `json:"seconds"`
}

func main() {
	limit := flag.Duration("limit", time.Minute, "time for the history of one ledger")
	flag.Parse()
	var lines []line
	for _, path := range flag.Args() {
		read, err := readLines(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(statusUnreadable)
		}
		lines = append(lines, read...)
	}
	found := check(lines, *limit)
	if found.Steps == 0 {
		fmt.Fprintln(os.Stderr, "the histories hold no operation to check: name files of operations")
		os.Exit(statusUnreadable)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(statusUnreadable)
	}
	if len(found.Illegal) > 0 {
		os.Exit(statusIllegal)
	}
	if len(found.Undecided) > 0 {
		os.Exit(statusUndecided)
	}
}

func check(lines []line, limit time.Duration) report {
	begun := time.Now()
	byLedger, ledgers := histories(lines)
	found := report{
		Operations: len(lines), Ledgers: len(ledgers), Illegal: []illegal{}, Undecided: []int64{},
	}
	for _, each := range lines {
		if each.Outcome == "unknown" {
			found.Unknown++
		}
	}
	for _, ledger := range ledgers {
		history := byLedger[ledger]
		found.Steps += len(history)
		found.StepsMax = max(found.StepsMax, len(history))
		start := time.Now()
		switch porcupine.CheckOperationsTimeout(model, history, limit) {
		case porcupine.Illegal:
			found.Illegal = append(found.Illegal, explain(ledger, history, limit))
		case porcupine.Unknown:
			found.Undecided = append(found.Undecided, ledger)
		}
		found.SlowestMs = max(found.SlowestMs, time.Since(start).Milliseconds())
	}
	found.Seconds = time.Since(begun).Seconds()
	return found
}

// explain searches again for the longest order, and names the first steps that it leaves out.
func explain(ledger int64, history []porcupine.Operation, limit time.Duration) illegal {
	_, info := porcupine.CheckOperationsVerbose(model, history, limit)
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed := make(map[int]bool)
	for _, place := range longest {
		placed[place] = true
	}
	var left []porcupine.Operation
	for place, each := range history {
		if !placed[place] && each.Return != never {
			left = append(left, each)
		}
	}
	sort.Slice(left, func(a, b int) bool { return left[a].Return < left[b].Return })
	shown := []string{}
	for _, each := range left[:min(len(left), stepsShownMax)] {
		shown = append(shown, model.DescribeOperation(each.Input, each.Output))
	}
	return illegal{Ledger: ledger, Steps: len(history), Placed: len(longest), NotPlaced: shown}
}
