package main

import (
	"encoding/json"

	"github.com/anishathalye/porcupine"
)

func one(state any) func() []any { return func() []any { return []any{state} } }

// Lease of a key: a message of it is given to a client when no other is out; it is out until that client answers, its
// timeout passes, or the process ends.

type held struct {
	place, who, life string
	until            float64
}

type take struct {
	held
	at float64
}

type give struct{ place, who string }

var lease = porcupine.NondeterministicModel{
	Init: one(held{}),
	Step: func(state, input, _ any) []any {
		now := state.(held)
		if given, is := input.(give); is {
			if now.place == given.place && now.who == given.who {
				return []any{held{}}
			}
			return []any{now}
		}
		taken := input.(take)
		if now.place == "" || now.life != taken.life || taken.at >= now.until {
			return []any{taken.held}
		}
		return nil
	},
}

const slack = 0.001

func leases(events []event) histories {
	found, timeouts, keys, keyOf := histories{}, map[string]float64{}, map[string]map[string]string{}, map[string]string{}
	for _, each := range events {
		place, of := string(each.Place), each.Group+" "+string(each.Place)
		switch each.Op {
		case "group":
			timeouts[each.Group] = each.Timeout
		case "send":
			keys[string(each.ID)] = each.Keys
		case "get":
			var topic []any
			json.Unmarshal(each.Place, &topic)
			key := keys[string(each.ID)][each.Group]
			if key == "" || each.Late || len(topic) == 0 {
				continue
			}
			keyOf[of] = each.Group + " " + topic[0].(string) + " " + key
			out := held{place, string(each.Who), string(each.Life), each.AskedT + timeouts[each.Group] - slack}
			found.add(keyOf[of], each.Asked, each.Turn, take{out, each.T}, nil)
		case "ack":
			if key, known := keyOf[of]; known {
				found.add(key, each.Turn, each.Turn, give{place, string(each.Who)}, nil)
			}
		}
	}
	return found
}

// Cancel against fire: a message that waits is delivered, or cancelled, never both; a change says which it was.

var waiting = porcupine.NondeterministicModel{
	Init: one("waits"),
	Step: func(state, input, output any) []any {
		cancels := input == "cancel"
		switch {
		case input == "fire":
			if state == "waits" {
				return []any{"fired"}
			}
		case output == "tooLate" && state == "fired", output == "cancelled" && state == "cancelled":
			return []any{state}
		case output == "cancelled" && state == "waits" && cancels:
			return []any{"cancelled"}
		case output == "rescheduled" && state == "waits" && !cancels:
			return []any{state}
		case output == "unknown" && state == "waits" && cancels:
			return []any{state, "cancelled"}
		case output == "unknown":
			return []any{state}
		}
		return nil
	},
}

func waits(events []event) histories {
	found, sent, fired := histories{}, map[string]int64{}, map[string]int64{}
	asked, taken := map[string][]event{}, map[string]bool{}
	for _, each := range events {
		id := string(each.ID)
		switch each.Op {
		case "send":
			if len(each.Due) > 0 && string(each.Due) != "null" {
				sent[id] = micros(each.T)
			}
		case "get", "stored":
			if at, known := fired[id]; !known || (each.Op == "get" && micros(each.T) < at) {
				fired[id] = map[string]int64{"get": micros(each.T), "stored": never}[each.Op]
			}
		case "change":
			asked[id] = append(asked[id], each)
		case "changed":
			// One after the other: the answer is that of the last change.
			if calls := asked[id]; len(calls) > 0 {
				change(found, id, calls[len(calls)-1], micros(each.T), each.Result)
				asked[id] = calls[:len(calls)-1]
			}
		case "cut":
			for _, gone := range each.IDs {
				taken[string(gone)] = true
			}
		}
	}
	for id, calls := range asked {
		for _, call := range calls {
			change(found, id, call, never, "unknown")
		}
	}
	for id := range found {
		if _, is := sent[id]; !is || taken[id] {
			delete(found, id)
		} else if at, came := fired[id]; came {
			found.add(id, sent[id], at, "fire", nil)
		}
	}
	return found
}

func change(found histories, id string, asked event, done int64, result string) {
	input := "move"
	if string(asked.Due) == "null" {
		input = "cancel"
	}
	found.add(id, micros(asked.T), done, input, result)
}

// Decision of a half: the first that is taken stands; it may be said again, and the other is refused.

var decision = porcupine.NondeterministicModel{
	Init: one(""),
	Step: func(state, input, output any) []any {
		switch {
		case input == "look":
			if (output == "visible") == (state == "commit") {
				return []any{state}
			}
		case output == "taken" && (state == "" || state == input):
			return []any{input}
		case output == "refused" && state != "" && state != input:
			return []any{state}
		case output == "unknown" && state == "":
			return []any{state, input}
		case output == "unknown":
			return []any{state}
		}
		return nil
	},
}

func decisions(events []event) histories {
	found, asked, seen := histories{}, map[string]event{}, map[string]bool{}
	for _, each := range events {
		id := string(each.ID)
		switch each.Op {
		case "decide":
			asked[string(each.Call)] = each
		case "decided":
			if call, known := asked[string(each.Call)]; known {
				found.add(id, micros(call.T), micros(each.T), call.State, each.Result)
				delete(asked, string(each.Call))
			}
		case "visible":
			seen[id] = true
		}
	}
	for _, each := range asked {
		found.add(string(each.ID), micros(each.T), never-1, each.State, "unknown")
	}
	for id := range found {
		output := "gone"
		if seen[id] {
			output = "visible"
		}
		found.add(id, never, never, "look", output)
	}
	return found
}

// Deduplication numbers: of a producer each number is stored once and in order; one that is not the next is a repeat or a gap.

type call struct{ number, count int64 }

const unknown = int64(-1)

var numbers = porcupine.NondeterministicModel{
	Init: one(unknown),
	Step: func(state, input, output any) []any {
		next, sent := state.(int64), input.(call)
		isNext, after := next == unknown || sent.number == next, sent.number+sent.count
		switch output {
		case "stored":
			if isNext {
				return []any{after}
			}
		case "repeat":
			if next != unknown && after <= next {
				return []any{next}
			}
		case "gap":
			if next == unknown || sent.number > next {
				return []any{next}
			}
		case "refused":
			return []any{next}
		case "unknown":
			if isNext {
				return []any{next, after}
			}
			return []any{next}
		}
		return nil
	},
}

func numbered(events []event) histories {
	found, asked := histories{}, map[string]event{}
	for _, each := range events {
		switch each.Op {
		case "try":
			asked[string(each.Call)] = each
		case "tried":
			if tried, known := asked[string(each.Call)]; known {
				found.add(string(tried.Who), micros(tried.T), micros(each.T), call{tried.Number, tried.Count}, each.Result)
				delete(asked, string(each.Call))
			}
		}
	}
	for _, each := range asked {
		found.add(string(each.Who), micros(each.T), never, call{each.Number, each.Count}, "unknown")
	}
	return found
}
