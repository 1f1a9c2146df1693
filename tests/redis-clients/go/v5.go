package main

import (
	"time"

	"gopkg.in/redis.v5"
)

type v5 struct {
	redis interface {
		SetNX(key string, value interface{}, expiration time.Duration) *redis.BoolCmd
		Get(key string) *redis.StringCmd
		Eval(script string, keys []string, args ...interface{}) *redis.Cmd
	}
}

func (c v5) setNX(key, token string, ttl time.Duration) (bool, error) {
	return c.redis.SetNX(key, token, ttl).Result()
}

func (c v5) get(key string) (string, error) {
	value, err := c.redis.Get(key).Result()
	if err == redis.Nil {
		return "", nil
	}
	return value, err
}

func (c v5) eval(script, key, token string) (interface{}, error) {
	return c.redis.Eval(script, []string{key}, token).Result()
}

func connect(driver string, addresses []string) client {
	switch driver {
	case "go-redis-5-sentinel":
		return v5{redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: addresses,
			DialTimeout: answerMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})}
	case "go-redis-5-cluster":
		return v5{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, DialTimeout: answerMax, ReadTimeout: answerMax, WriteTimeout: answerMax,
		})}
	}
	panic("there is no driver " + driver)
}
