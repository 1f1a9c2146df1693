// One driver for failover.py: failover DRIVER PORT... A line of JSON asks for something, a line answers.
//
// Compiled with v5.go or with v9.go, which are the same few operations with two versions of go-redis.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// A leader that is paused keeps its connections: without this bound the driver would wait for it.
const answerMax = time.Second

const release = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// What the kinds and versions of clients have in common.
type client interface {
	setNX(key, token string, ttl time.Duration) (bool, error)
	// The empty string: there is no lock.
	get(key string) (string, error)
	eval(script, key, token string) (interface{}, error)
}

type request struct {
	Take      string `json:"take"`
	TakeOther string `json:"take_other"`
	IsHeld    string `json:"is_held"`
	Release   string `json:"release"`
	TTLMs     int64  `json:"ttl_ms"`
}

type answer struct {
	Ok bool `json:"ok"`
	// The driver sent the command again by itself, after the first answer was lost.
	Repeated bool   `json:"repeated"`
	Error    string `json:"error,omitempty"`
}

func newToken() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return hex.EncodeToString(bytes)
}

type locks struct {
	client client
	tokens map[string]string
}

func (l *locks) holds(key, token string) (bool, error) {
	value, err := l.client.get(key)
	return err == nil && value == token, err
}

func (l *locks) take(key string, ttl time.Duration) (answer, error) {
	token := newToken()
	granted, err := l.client.setNX(key, token, ttl)
	if err != nil {
		return answer{}, err
	}
	repeated := false
	// A driver that lost the answer may ask again by itself, and is refused by the lock that it has.
	if !granted {
		if granted, err = l.holds(key, token); err != nil {
			return answer{}, err
		}
		repeated = granted
	}
	if granted {
		l.tokens[key] = token
	}
	return answer{Ok: granted, Repeated: repeated}, nil
}

func (l *locks) carryOut(asked request) (answer, error) {
	ttl := time.Duration(asked.TTLMs) * time.Millisecond
	switch {
	case asked.Take != "":
		return l.take(asked.Take, ttl)
	case asked.TakeOther != "":
		granted, err := l.client.setNX(asked.TakeOther, newToken(), ttl)
		return answer{Ok: granted}, err
	case asked.IsHeld != "":
		held, err := l.holds(asked.IsHeld, l.tokens[asked.IsHeld])
		return answer{Ok: held}, err
	}
	said, err := l.client.eval(release, asked.Release, l.tokens[asked.Release])
	return answer{Ok: err == nil && said == int64(1)}, err
}

func main() {
	var addresses []string
	for _, port := range os.Args[2:] {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	held := locks{connect(os.Args[1], addresses), map[string]string{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		given, err := held.carryOut(asked)
		if err != nil {
			given = answer{Error: err.Error()}
		}
		line, err := json.Marshal(given)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
