// Command consolecalls makes the calls of Redpanda Console and of kminion, in the order in which they make them.
//
// `consolecalls CLIENT.json WORLD.json` prints one JSON line for each call. Both tools read the broker's list of APIs
// first: a call whose API is not in the list is printed as "page absent", and is not made.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const callTimeout = 30 * time.Second

// connection is the identity of a client, in the form of the options of kafkajs.
type connection struct {
	Brokers []string
	SSL     *struct{ CA []string }
	SASL    *struct{ Mechanism, Username, Password string }
}

// world names what the cluster has before the calls.
type world struct {
	Topic    string
	Groups   []string
	Idle     string // the group without members, whose offsets are changed
	User     string
	NewTopic string // a name that is free
	Password string // of the user that a page makes
}

var tools = []struct {
	name  string
	pages func(*replay, world)
}{{"Redpanda Console", consolePages}, {"kminion", exporterPages}}

func main() {
	var given connection
	var names world
	load(os.Args[1], &given)
	load(os.Args[2], &names)
	client, err := kgo.NewClient(options(given)...)
	fail(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	for _, tool := range tools {
		calls := &replay{tool: tool.name, client: client, admin: admin, connect: options(given)}
		calls.readVersions()
		own := names // each tool has its own topic and group
		suffix := "-" + strings.ReplaceAll(tool.name, " ", "-")
		own.NewTopic, own.Idle = names.NewTopic+suffix, names.Idle+suffix
		tool.pages(calls, own)
	}
}

func load(path string, into any) {
	text, err := os.ReadFile(path)
	fail(err)
	fail(json.Unmarshal(text, into))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options(given connection) []kgo.Opt {
	found := []kgo.Opt{kgo.SeedBrokers(given.Brokers...), kgo.RequestRetries(3)}
	if given.SSL != nil {
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM([]byte(strings.Join(given.SSL.CA, "\n")))
		found = append(found, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	if given.SASL != nil {
		login := scram.Auth{User: given.SASL.Username, Pass: given.SASL.Password}
		found = append(found, kgo.SASL(login.AsSha512Mechanism()))
	}
	return found
}

// replay makes the calls of one tool.
type replay struct {
	tool    string
	client  *kgo.Client
	admin   *kadm.Client
	connect []kgo.Opt
	served  map[int16]bool
}

type figures map[string]any

// call makes one call and prints its line. It is not made if the brokers do not list an API that it needs.
func (r *replay) call(page, name string, needs []int16, make func(context.Context) (figures, error)) {
	line := map[string]any{"tool": r.tool, "page": page, "call": name}
	for _, key := range needs {
		if !r.served[key] {
			line["result"] = "page absent"
			r.print(line)
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	found, err := make(ctx)
	line["result"] = "ok"
	if err != nil {
		line["result"], line["error"] = "error", err.Error()
	}
	if found != nil {
		line["figures"] = found
	}
	r.print(line)
}

func (r *replay) print(line map[string]any) {
	text, err := json.Marshal(line)
	fail(err)
	fmt.Println(string(text))
}

// readVersions keeps the keys of the APIs that every broker lists. Without the lists the program ends: each page would be
// taken for absent.
func (r *replay) readVersions() {
	r.call("start", "ApiVersions", nil, func(ctx context.Context) (figures, error) {
		answers, err := r.admin.ApiVersions(ctx)
		if err != nil {
			return nil, err
		}
		counts, guess := map[int16]int{}, ""
		for _, each := range answers {
			if each.Err != nil {
				return nil, each.Err
			}
			each.EachKeySorted(func(key, _, _ int16) { counts[key]++ })
			guess = each.VersionGuess()
		}
		r.served = map[int16]bool{}
		for key, count := range counts {
			r.served[key] = count == len(answers)
		}
		return figures{"brokers": len(answers), "apis": len(r.served), "version_guess": guess}, nil
	})
	if len(r.served) == 0 {
		fail(errors.New("no broker listed its APIs: check the addresses and the login"))
	}
}
