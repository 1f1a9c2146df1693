package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Longer than a Sentinel may take to answer: go-redis 9 asks it while it dials. If the time for
// dialling is over first, it takes the Sentinel to be well, and asks it again although it is paused.
const dialMax = 3 * answerMax

type v9 struct {
	redis redis.UniversalClient
}

func (c v9) setNX(key, token string, ttl time.Duration) (bool, error) {
	return c.redis.SetNX(context.Background(), key, token, ttl).Result()
}

func (c v9) get(key string) (string, error) {
	value, err := c.redis.Get(context.Background(), key).Result()
	if err == redis.Nil {
		return "", nil
	}
	return value, err
}

func (c v9) eval(script, key, token string) (interface{}, error) {
	return c.redis.Eval(context.Background(), script, []string{key}, token).Result()
}

func connect(driver string, addresses []string) client {
	switch driver {
	case "go-redis-9-sentinel":
		return v9{redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: addresses,
			DialTimeout: dialMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})}
	case "go-redis-9-cluster":
		return v9{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, DialTimeout: dialMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})}
	}
	panic("there is no driver " + driver)
}
