// One driver for failover.py: failover DRIVER PORT... A line of JSON asks for something, a line answers.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"gopkg.in/redis.v5"
)

// A leader that is paused keeps its connections: without this bound the driver would wait for it.
const answerMax = time.Second

const release = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// What the two kinds of client have in common.
type client interface {
	SetNX(key string, value interface{}, expiration time.Duration) *redis.BoolCmd
	Get(key string) *redis.StringCmd
	Eval(script string, keys []string, args ...interface{}) *redis.Cmd
}

type request struct {
	Take      string `json:"take"`
	TakeOther string `json:"take_other"`
	IsHeld    string `json:"is_held"`
	Release   string `json:"release"`
	TTLMs     int64  `json:"ttl_ms"`
}

func connect(driver string, addresses []string) client {
	switch driver {
	case "go-redis-sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: addresses,
			DialTimeout: answerMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})
	case "go-redis-cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, DialTimeout: answerMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})
	}
	panic("there is no driver " + driver)
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
	value, err := l.client.Get(key).Result()
	if err == redis.Nil {
		return false, nil
	}
	return err == nil && value == token, err
}

func (l *locks) take(key string, ttl time.Duration) (bool, error) {
	token := newToken()
	granted, err := l.client.SetNX(key, token, ttl).Result()
	if err != nil {
		return false, err
	}
	// A driver that lost the answer may ask again by itself, and is refused by the lock that it has.
	if !granted {
		if granted, err = l.holds(key, token); err != nil {
			return false, err
		}
	}
	if granted {
		l.tokens[key] = token
	}
	return granted, nil
}

func (l *locks) carryOut(asked request) (bool, error) {
	ttl := time.Duration(asked.TTLMs) * time.Millisecond
	switch {
	case asked.Take != "":
		return l.take(asked.Take, ttl)
	case asked.TakeOther != "":
		return l.client.SetNX(asked.TakeOther, newToken(), ttl).Result()
	case asked.IsHeld != "":
		return l.holds(asked.IsHeld, l.tokens[asked.IsHeld])
	}
	said, err := l.client.Eval(release, []string{asked.Release}, l.tokens[asked.Release]).Result()
	return err == nil && said == int64(1), err
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
		answer := map[string]interface{}{}
		if ok, err := held.carryOut(asked); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["ok"] = ok
		}
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
