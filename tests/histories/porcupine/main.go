// Judges a journal (tests/histories/journal.py) by four small models, each of one thing that clients share.
//
// go run . [-seconds N] FILE prints a line of JSON for each model: how many things were judged, and `ok`, `broken` with the
// first that no order of the operations explains, or `undecided` where the time was up before. It ends with 1 when one is broken.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// What may have happened at any time, and what was never answered, ends here.
const never = int64(1) << 62

type event struct {
	Op      string          `json:"op"`
	T       float64         `json:"t"`
	Turn    int64           `json:"turn"`
	Life    json.RawMessage `json:"life"`
	ID      json.RawMessage `json:"id"`
	Group   string          `json:"group"`
	Who     json.RawMessage `json:"who"`
	Place   json.RawMessage `json:"place"`
	Keys    map[string]string
	Due     json.RawMessage `json:"due"`
	Asked   int64           `json:"asked"`
	AskedT  float64         `json:"asked_t"`
	Late    bool            `json:"late"`
	Timeout float64         `json:"timeout"`
	State   string          `json:"state"`
	Result  string          `json:"result"`
	Call    json.RawMessage `json:"call"`
	Number  int64           `json:"number"`
	Count   int64           `json:"count"`
	IDs     []json.RawMessage
}

// History of one thing: a key, a message, a transaction, a producer.
type histories map[string][]porcupine.Operation

func (found histories) add(name string, call, done int64, input, output any) {
	found[name] = append(found[name], porcupine.Operation{Call: call, Return: max(call, done), Input: input, Output: output})
}

type judged struct {
	Model  string `json:"model"`
	Things int    `json:"things"`
	Answer string `json:"answer"`
	First  string `json:"first,omitempty"`
}

func micros(seconds float64) int64 { return int64(seconds * 1e6) }

func main() {
	seconds := flag.Float64("seconds", 60, "for each model")
	flag.Parse()
	events, err := read(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	models := []struct {
		name  string
		model porcupine.Model
		of    histories
	}{
		{"lease of a key", lease.ToModel(), leases(events)},
		{"cancel against fire", waiting.ToModel(), waits(events)},
		{"decision of a half", decision.ToModel(), decisions(events)},
		{"deduplication numbers", numbers.ToModel(), numbered(events)},
	}
	code := 0
	for _, each := range models {
		result := judge(each.name, each.model, each.of, time.Duration(*seconds*float64(time.Second)))
		if result.Answer == "broken" {
			code = 1
		}
		line, _ := json.Marshal(result)
		fmt.Println(string(line))
	}
	os.Exit(code)
}

func judge(name string, model porcupine.Model, of histories, limit time.Duration) judged {
	result := judged{Model: name, Things: len(of), Answer: "ok"}
	end := time.Now().Add(limit)
	for thing, history := range of {
		// A timeout of 0 would be none.
		switch porcupine.CheckOperationsTimeout(model, history, max(time.Until(end), time.Nanosecond)) {
		case porcupine.Illegal:
			return judged{name, len(of), "broken", thing}
		case porcupine.Unknown:
			result.Answer, result.First = "undecided", thing
		}
	}
	return result
}

func read(path string) ([]event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	var events []event
	for lines.Scan() {
		var each event
		if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(events)+1, err)
		}
		events = append(events, each)
	}
	return events, lines.Err()
}
