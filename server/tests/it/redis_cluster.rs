//! What clients of Redis hear from the nodes of a cluster: how they find the leader, and what
//! followers say. How drivers get along with it is tested in tests/redis-clients.

use crate::common::until;
use crate::nodes::Nodes;
use crate::redis::Redis;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

fn connect(nodes: &Nodes, place: usize) -> Redis<TcpStream> {
    Redis::at(address(nodes, place))
}

fn address(nodes: &Nodes, place: usize) -> SocketAddr {
    nodes.node(place).redis_addr().expect("it has a Redis port")
}

/// Three nodes that have told each other where their Redis ports are, with the leader's place.
fn start() -> (Nodes, usize) {
    let nodes = Nodes::start();
    for place in nodes.running() {
        until("every node knows all Redis ports", || {
            let said = connect(&nodes, place).say("CLUSTER NODES");
            nodes
                .running()
                .all(|other| said.contains(&address(&nodes, other).to_string()))
        });
    }
    let leader = nodes.leader();
    (nodes, leader)
}

#[test]
fn every_node_names_the_leader_to_clients_of_sentinel() {
    let (nodes, leader) = start();
    let leader = address(&nodes, leader);
    for place in nodes.running() {
        let mut redis = connect(&nodes, place);
        let mut say = |command: &str| redis.say(command);
        let (host, port) = (leader.ip(), leader.port());
        let found = format!("[{host} {port}]");
        assert_eq!(say("SENTINEL get-master-addr-by-name mymaster"), found);
        assert_eq!(say("SENTINEL get-master-addr-by-name another"), "nil");

        let masters = say("SENTINEL MASTERS");
        assert!(say("SENTINEL MASTER mymaster").starts_with("[name mymaster "));
        for field in [
            &*format!("name mymaster ip {host} port {port} "),
            "flags master ",
            "num-slaves 2 ",
            "num-other-sentinels 2 ",
            "quorum 2 ",
        ] {
            assert!(masters.contains(field), "{field} is not in {masters}");
        }
        assert_eq!(
            say("SENTINEL MASTER another"),
            "ERR No such master with that name"
        );

        let replicas = say("SENTINEL REPLICAS mymaster");
        let slaves = say("SENTINEL SLAVES mymaster");
        for follower in nodes.followers() {
            let name = format!("name {} ", address(&nodes, follower));
            assert!(replicas.contains(&name), "{name} is not in {replicas}");
            assert!(slaves.contains(&name), "{name} is not in {slaves}");
        }
        assert_eq!(replicas.matches("flags slave ").count(), 2, "{replicas}");

        let sentinels = say("SENTINEL SENTINELS mymaster");
        let own = format!("port {} ", address(&nodes, place).port());
        assert_eq!(sentinels.matches("flags sentinel ").count(), 2);
        assert!(!sentinels.contains(&own), "{sentinels}");

        assert!(say("SENTINEL CKQUORUM mymaster").starts_with("OK 3 usable"));
        assert!(say("SENTINEL FAILOVER mymaster").starts_with("ERR unknown subcommand"));
        assert!(say("SENTINEL MASTER").starts_with("ERR wrong number of arguments"));
    }
}

#[test]
fn the_master_has_the_name_that_the_settings_give_it() {
    let nodes = Nodes::start_with(3, |config| config.redis_master_name = "locks".to_owned());
    let mut redis = connect(&nodes, nodes.leader());
    assert_ne!(redis.say("SENTINEL get-master-addr-by-name locks"), "nil");
    assert_eq!(
        redis.say("SENTINEL get-master-addr-by-name mymaster"),
        "nil"
    );
}

#[test]
fn the_leader_says_that_it_is_the_master_and_followers_whose_they_are() {
    let (nodes, leader) = start();
    let (host, port) = (address(&nodes, leader).ip(), address(&nodes, leader).port());
    let mut redis = connect(&nodes, leader);
    until("the leader has heard from both followers", || {
        redis.say("INFO replication").contains("connected_slaves:2")
    });
    let info = redis.say("INFO replication");
    assert!(info.contains("role:master\r\n"), "{info}");
    let role = redis.say("ROLE");
    assert!(role.starts_with("[master "), "{role}");
    for follower in nodes.followers() {
        let follower = address(&nodes, follower);
        let line = format!(
            ":ip={},port={},state=online,",
            follower.ip(),
            follower.port()
        );
        assert!(info.contains(&line), "{line} is not in {info}");
        let place = format!("[{} {} ", follower.ip(), follower.port());
        assert!(role.contains(&place), "{place} is not in {role}");

        let mut redis = Redis::at(follower);
        let info = redis.say("INFO replication");
        for field in [
            "role:slave\r\n",
            &*format!("master_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:up\r\n"),
            "slave_read_only:1\r\n",
        ] {
            assert!(info.contains(field), "{field} is not in {info}");
        }
        let role = redis.say("ROLE");
        let expected = format!("[slave {host} {port} connected ");
        assert!(role.starts_with(&expected), "{role}");
        assert!(redis.say("INFO server").contains("redis_mode:cluster\r\n"));
        assert!(redis.say("INFO cluster").contains("cluster_enabled:1\r\n"));
        assert!(redis.say("HELLO 2").contains("mode cluster role replica"));
    }
}

#[test]
fn all_slots_belong_to_the_leader() {
    let (nodes, leader) = start();
    let leads = address(&nodes, leader);
    let ids: Vec<String> = nodes
        .running()
        .map(|place| connect(&nodes, place).say("CLUSTER MYID"))
        .collect();
    assert!(ids.iter().all(|id| id.len() == 40), "{ids:?}");
    for place in nodes.running() {
        let mut redis = connect(&nodes, place);
        let slots = redis.say("CLUSTER SLOTS");
        let first = format!(
            "[[0 16383 [{} {} {} []] [",
            leads.ip(),
            leads.port(),
            ids[leader]
        );
        assert!(slots.starts_with(&first), "{slots}");
        assert!(ids.iter().all(|id| slots.contains(id)), "{slots}");

        let shards = redis.say("CLUSTER SHARDS");
        assert!(shards.starts_with("[[slots [0 16383] nodes [["), "{shards}");
        assert_eq!(shards.matches("role replica").count(), 2, "{shards}");

        let lines = redis.say("CLUSTER NODES");
        for (other, id) in ids.iter().enumerate() {
            let line = lines.lines().find(|line| line.starts_with(id)).unwrap();
            let at = address(&nodes, other);
            assert!(line.starts_with(&format!("{id} {at}@")), "{line}");
            assert_eq!(line.contains("myself,"), other == place, "{line}");
            match other == leader {
                true => assert!(line.contains("master - ") && line.ends_with(" 0-16383")),
                false => assert!(line.contains(&format!("slave {} ", ids[leader])), "{line}"),
            }
        }
        let replicas = redis.say(&format!("CLUSTER REPLICAS {}", ids[leader]));
        assert_eq!(replicas.matches("slave ").count(), 2, "{replicas}");

        assert!(redis.say("CLUSTER INFO").contains("cluster_state:ok\r\n"));
        assert_eq!(redis.say("CLUSTER KEYSLOT foo{hash_tag}"), "2515");
        assert!(
            redis
                .say("CLUSTER RESET")
                .starts_with("ERR unknown subcommand")
        );
        assert_eq!(redis.say("READONLY"), "OK");
        assert_eq!(redis.say("READWRITE"), "OK");
        assert_eq!(redis.say("ASKING"), "OK");
    }
}

#[test]
fn followers_send_plain_clients_away_and_clients_in_cluster_mode_to_the_leader() {
    let (nodes, leader) = start();
    let leads = address(&nodes, leader);
    for follower in nodes.followers() {
        let mut plain = connect(&nodes, follower);
        assert_eq!(plain.say("PING"), "PONG");
        let said = plain.say("SET foo token NX PX 60000");
        let expected = format!(
            "READONLY You can't write against a read only replica: this node does not lead, the leader is at {leads}"
        );
        assert_eq!(said, expected);
        assert!(
            is_closed(&mut plain),
            "a driver looks for the leader when it connects again"
        );

        let mut moves = connect(&nodes, follower);
        assert!(moves.say("CLUSTER SLOTS").starts_with("[["));
        for (command, slot) in [
            ("SET foo token NX PX 60000", 12_182),
            ("GET foo", 12_182),
            ("EVAL return 2 foo{hash_tag} bar", 2_515),
            ("EVAL return 0 foo", 0),
            ("BLPOP foo bar 1", 12_182),
            ("MULTI", 0),
            ("WAIT 1 100", 0),
        ] {
            assert_eq!(
                moves.say(command),
                format!("MOVED {slot} {leads}"),
                "{command}"
            );
        }
        assert_eq!(moves.say("PING"), "PONG", "it stays connected");
        assert_eq!(moves.say("RESET"), "RESET");
        assert!(moves.say("GET foo").starts_with("READONLY "));
    }
    let mut redis = connect(&nodes, leader);
    assert!(redis.say("CLUSTER SLOTS").starts_with("[["));
    assert_eq!(redis.say("SET foo token NX PX 60000"), "OK");
    assert_eq!(
        redis.say("WAIT 1 100"),
        "1",
        "one of two followers has it, or both"
    );
    assert_eq!(
        redis.say("WAIT x 100"),
        "ERR value is not an integer or out of range"
    );
    assert_eq!(redis.say("WAIT 1 -1"), "ERR timeout is negative");
}

fn is_closed(redis: &mut Redis<TcpStream>) -> bool {
    redis.stream.read(&mut [0]).expect("an orderly end") == 0
}

#[test]
fn followers_let_clients_listen_to_what_sentinel_says_and_to_nothing_else() {
    let (nodes, _) = start();
    let follower = nodes.followers()[0];
    let mut redis = connect(&nodes, follower);
    assert_eq!(
        redis.say("SUBSCRIBE +switch-master"),
        "[subscribe +switch-master 1]"
    );
    let mut redis = connect(&nodes, follower);
    assert_eq!(redis.say("PSUBSCRIBE *"), "[psubscribe * 1]");
    let mut redis = connect(&nodes, follower);
    let said = redis.say("SUBSCRIBE redisson_lock__channel:{orders}");
    assert!(said.starts_with("READONLY "), "{said}");

    // What node-redis asks for, all at once. It leaves a Sentinel that refuses it, and with the
    // Sentinel all commands wait.
    let topics = "switch-master [-+]sdown +slave +sentinel [-+]odown +slave-reconf-done";
    let mut redis = connect(&nodes, follower);
    redis.send(
        &format!("PSUBSCRIBE {topics}")
            .split(' ')
            .collect::<Vec<_>>(),
    );
    for (number, topic) in topics.split(' ').enumerate() {
        assert_eq!(redis.read(), format!("[psubscribe {topic} {}]", number + 1));
    }
    let mut redis = connect(&nodes, follower);
    let said = redis.say("PSUBSCRIBE [-+]sdown registry-*");
    assert!(said.starts_with("READONLY "), "{said}");
}

#[test]
fn a_lock_outlives_the_leader_and_clients_find_the_next_one() {
    let (mut nodes, first) = start();
    let mut redis = connect(&nodes, first);
    assert_eq!(redis.say("SET orders token NX PX 600000"), "OK");
    let fence = redis.number("LOCK.FENCE orders");
    let mut blocked = connect(&nodes, first);
    blocked.send(&["BLPOP", "signal", "0"]);
    let listeners = nodes.followers().into_iter().map(|place| {
        let mut listener = connect(&nodes, place);
        listener.say("SUBSCRIBE +switch-master");
        (place, listener)
    });
    let mut listeners: Vec<_> = listeners.collect();
    let before = address(&nodes, first);

    nodes.stop(first);
    assert!(is_closed(&mut redis));
    assert!(is_closed(&mut blocked));
    let second = nodes.leader();
    assert_ne!(second, first);
    let after = address(&nodes, second);
    let mut redis = connect(&nodes, second);
    assert_eq!(redis.say("SET orders other NX PX 600000"), "nil");
    assert_eq!(redis.say("GET orders"), "token");
    assert_eq!(redis.number("LOCK.FENCE orders"), fence);
    assert_eq!(redis.say("SET free other NX PX 600000"), "OK");
    assert!(redis.number("LOCK.FENCE free") > fence);

    for (place, listener) in &mut listeners {
        if *place == second {
            assert!(is_closed(listener), "it had been a follower's connection");
            continue;
        }
        let news = format!(
            "[message +switch-master mymaster {} {} {} {}]",
            before.ip(),
            before.port(),
            after.ip(),
            after.port()
        );
        assert_eq!(listener.read(), news);
    }
    for place in nodes.running() {
        let found = format!("[{} {}]", after.ip(), after.port());
        until("every node names the new leader", || {
            connect(&nodes, place).say("SENTINEL get-master-addr-by-name mymaster") == found
        });
    }

    nodes.start_again(first);
    until("the node that comes back follows", || {
        let Ok(stream) = TcpStream::connect(address(&nodes, first)) else {
            return false;
        };
        let said = Redis::on(stream).say("INFO replication");
        said.contains("role:slave\r\n") && said.contains("master_link_status:up\r\n")
    });
}

/// Takes a lock as Redisson does where there are replicas: it asks how many there are, and in the
/// same batch as the script how many have what the script did. With none, it does not take the
/// lock to be its own. `None` once it has the lock, otherwise how long the other has it.
fn acquire_like_redisson(redis: &mut Redis<TcpStream>, key: &str, owner: &str) -> Option<i64> {
    let info = redis.say("INFO ALL");
    let replicas = info.split_once("connected_slaves:").expect("it leads").1;
    let replicas = replicas.split_once('\r').expect("a line").0;
    let lock = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
    redis.send(&["EVALSHA", lock, "1", key, "30000", owner]);
    redis.send(&["WAIT", replicas, "1000"]);
    let left_ms = redis.read();
    let synced: i64 = redis.read().parse().expect("how many have it");
    assert!(synced > 0 || replicas == "0", "{info}");
    (left_ms != "nil").then(|| left_ms.parse().expect("how long the other has it"))
}

#[test]
fn what_redisson_asks_before_and_with_a_lock_is_answered_by_the_next_leader_too() {
    let (mut nodes, first) = start();
    let mut redis = connect(&nodes, first);
    // Redisson finds out which of the two there are. It goes by these words and gives up at others.
    redis.number("WAIT 0 0");
    let unknown = redis.say("WAITAOF 0 0 0");
    assert!(unknown.starts_with("ERR unknown command"), "{unknown}");
    assert!(unknown.contains("WAITAOF"), "{unknown}");
    assert_eq!(acquire_like_redisson(&mut redis, "kept", "one:1"), None);
    let fence = redis.number("LOCK.FENCE kept");

    nodes.stop(first);
    let second = nodes.leader();
    let (mut one, mut two) = (connect(&nodes, second), connect(&nodes, second));
    let left_ms = acquire_like_redisson(&mut two, "kept", "two:1");
    assert!(left_ms.is_some(), "it outlived its leader");
    let renew = "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635";
    assert_eq!(
        one.say(&format!("EVALSHA {renew} 1 kept 30000 one:1")),
        "[1]",
        "the watchdog goes on"
    );
    assert_eq!(one.number("LOCK.FENCE kept"), fence);
    let unlock = "6866459238a13a701d42f4971f12d9f3a50e2442";
    for turn in 0..2 {
        for (redis, owner, other) in [(&mut one, "one:1", "two:1"), (&mut two, "two:1", "one:1")] {
            assert_eq!(acquire_like_redisson(redis, "turns", owner), None);
            assert!(acquire_like_redisson(redis, "turns", other).is_some());
            let call = format!(
                "EVALSHA {unlock} 3 turns channel latch-{owner}-{turn} 0 30000 {owner} PUBLISH 1000"
            );
            assert_eq!(redis.say(&call), "1");
        }
    }
}

#[test]
fn without_a_majority_nodes_say_that_there_is_no_leader() {
    let (mut nodes, leader) = start();
    let followers = nodes.followers();
    nodes.stop(followers[0]);
    nodes.stop(followers[1]);
    // What is asked of the leader is answered when a majority has confirmed it: not any more.
    until("the leader gives up", || {
        let said = connect(&nodes, leader).try_say("INFO replication");
        said.is_some_and(|said| {
            said.contains("role:slave\r\n") && said.contains("master_link_status:down\r\n")
        })
    });
    let mut redis = connect(&nodes, leader);
    assert!(redis.say("CLUSTER INFO").contains("cluster_state:fail\r\n"));
    assert!(redis.say("GET foo").starts_with("CLUSTERDOWN "));
    assert!(
        redis
            .say("SENTINEL CKQUORUM mymaster")
            .starts_with("NOQUORUM ")
    );
    assert!(
        redis
            .say("SENTINEL MASTERS")
            .contains("flags master,s_down,o_down ")
    );
    let mut plain = connect(&nodes, leader);
    assert!(plain.say("GET foo").ends_with("no leader is known yet"));

    nodes.start_again(followers[0]);
    let leader = nodes.leader();
    assert_eq!(connect(&nodes, leader).say("GET foo"), "nil");
}

#[test]
fn a_server_by_itself_is_a_master_without_replicas_or_sentinels() {
    let server = crate::redis::start(|_| {});
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("ROLE"), "[master 0 []]");
    let info = redis.say("INFO replication");
    assert!(
        info.contains("role:master\r\nconnected_slaves:0\r\n"),
        "{info}"
    );
    for command in [
        "CLUSTER SLOTS",
        "CLUSTER KEYSLOT foo",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        assert_eq!(
            redis.say(command),
            "ERR This instance has cluster support disabled"
        );
    }
    for command in ["SENTINEL MASTERS", "WAIT 1 0"] {
        assert!(
            redis.say(command).starts_with("ERR unknown command"),
            "{command}"
        );
    }
}

#[test]
fn where_the_keys_of_a_command_stand_is_told() {
    let server = crate::redis::start(|_| {});
    let mut redis = Redis::connect(&server);
    let said = redis.say("COMMAND INFO set mget blpop eval subscribe nonsense");
    assert_eq!(
        said,
        "[[set -3 [] 1 1 1 [] [] [] []] [mget -2 [] 1 -1 1 [] [] [] []] [blpop -3 [] 1 -2 1 [] [] [] []] \
         [eval -3 [movablekeys] 0 0 0 [] [] [] []] [subscribe -2 [pubsub] 0 0 0 [] [] [] []] nil]"
    );
    let count = redis.number("COMMAND COUNT");
    let all = redis.say("COMMAND");
    assert_eq!(all.matches("[] [] [] []]").count() as i64, count);
}
