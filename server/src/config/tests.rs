use super::value::{parse_time, show_time};
use super::*;
use std::ffi::OsString;

fn setting(name: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|setting| setting.name == name)
        .unwrap()
}

fn sources(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
    Sources {
        flags: flags
            .iter()
            .map(|(name, text)| (setting(name), (*text).to_owned()))
            .collect(),
        config_file: None,
        environment: environment
            .iter()
            .map(|(name, text)| (OsString::from(name), OsString::from(text)))
            .collect(),
    }
}

/// With a file of this text, whose name is cut off in the errors.
fn load_file(text: &str, mut sources: Sources) -> Result<Loaded, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.toml");
    std::fs::write(&path, text).unwrap();
    sources.config_file = Some(path);
    sources.load().map_err(|error| {
        let directory = format!("{}/", directory.path().display());
        error.to_string().replace(&directory, "")
    })
}

fn refusal(sources: Sources) -> String {
    sources.load().unwrap_err().to_string()
}

fn refusal_of_file(text: &str) -> String {
    load_file(text, Sources::default()).unwrap_err()
}

#[test]
fn defaults_pass_their_own_checks() {
    assert_eq!(Config::default().check(), Ok(()));
    assert_eq!(Sources::default().load().unwrap().config, Config::default());
}

#[test]
fn every_setting_reads_back_what_it_shows() {
    let config = Config::default();
    for setting in SETTINGS {
        let mut copy = config.clone();
        (setting.set)(&mut copy, &setting.show(&config)).unwrap();
        assert_eq!(copy, config, "{}", setting.name);
    }
}

#[test]
fn every_setting_is_explained() {
    for setting in SETTINGS {
        let doc = setting.doc();
        assert!(
            doc.ends_with('.') && doc.len() > 10,
            "{}: {doc:?}",
            setting.name
        );
    }
}

#[test]
fn flags_come_before_environment_before_file_before_defaults() {
    let file = "threads = 1\nshards = 8\nidle = \"1m\"\n";
    let loaded = load_file(
        file,
        sources(
            &[("FENCEPOST_THREADS", "2"), ("FENCEPOST_SHARDS", "16")],
            &[("threads", "3")],
        ),
    )
    .unwrap();
    let config = &loaded.config;
    assert_eq!((config.threads, config.shards), (3, 16));
    assert_eq!(config.idle, Duration::from_secs(60));
    assert_eq!(config.keys_max, Config::default().keys_max);
    assert_eq!(loaded.origin_of("threads").to_string(), "--threads");
    assert_eq!(loaded.origin_of("shards").to_string(), "FENCEPOST_SHARDS");
    assert!(
        loaded
            .origin_of("idle")
            .to_string()
            .ends_with("fencepost.toml:3")
    );
    assert_eq!(*loaded.origin_of("keys_max"), Origin::Default);
}

#[test]
fn what_is_printed_can_be_fed_back() {
    let loaded = sources(
        &[("FENCEPOST_IDLE", "1.5s"), ("FENCEPOST_PIN", "true")],
        &[
            ("http", "off"),
            ("audit_log", "a \"quoted\\path\" # with everything"),
            ("bytes_max", "1536MiB"),
            ("log_level", "debug"),
        ],
    )
    .load()
    .unwrap();
    let again = load_file(&loaded.to_toml(), Sources::default()).unwrap();
    assert_eq!(again.config, loaded.config);
    assert!(loaded.to_toml().contains("# FENCEPOST_IDLE\n"));
}

#[test]
fn the_environment_may_name_the_file() {
    let error = refusal(sources(&[("FENCEPOST_CONFIG", "/nowhere/f.toml")], &[]));
    assert!(
        error.starts_with("cannot read the settings in /nowhere/f.toml: "),
        "{error}"
    );
    assert!(sources(&[("FENCEPOST_CONFIG", "")], &[]).load().is_ok());
}

#[test]
fn a_bad_value_names_its_place_and_what_is_allowed() {
    assert_eq!(
        refusal(sources(&[], &[("session_ttl", "5 parsecs")])),
        "--session-ttl: \"5 parsecs\" is not a time, write a number and a unit like 500ms, 30s, 2m, 1h or 1d"
    );
    assert_eq!(
        refusal(sources(&[("FENCEPOST_SESSION_TTL", "99ms")], &[])),
        "FENCEPOST_SESSION_TTL: 99ms is out of range, 100ms to 1d are allowed"
    );
    assert_eq!(
        refusal(sources(&[], &[("election_timeout", "6s")])),
        "--election-timeout: 6s is out of range, 100ms to 5s are allowed: leaders show themselves five times as often, \
         and one that is silent for 2s is not counted as leading"
    );
    assert_eq!(
        refusal_of_file("# limits\n\nkeys_max = -1\n"),
        "fencepost.toml:3: keys_max: \"-1\" is not a whole number that fits here"
    );
    assert_eq!(
        refusal_of_file("idle = 30"),
        "fencepost.toml:1: idle: \"30\" is not a time, write a number and a unit like 500ms, 30s, 2m, 1h or 1d"
    );
    assert_eq!(
        refusal_of_file("log_format = \"xml\""),
        "fencepost.toml:1: log_format: \"xml\" is unknown, text, json are allowed"
    );
    assert_eq!(
        refusal_of_file("threads = [1,\n 2]"),
        "fencepost.toml:1: threads: \"[1,2]\" is not a whole number that fits here"
    );
    assert_eq!(
        refusal(sources(&[("FENCEPOST_HTTP", "7401")], &[])),
        "FENCEPOST_HTTP: \"7401\" is not an address and a port, write it like 127.0.0.1:7400 or [::1]:7400, or off"
    );
    assert_eq!(
        refusal(sources(&[], &[("pin", "maybe")])),
        "--pin: \"maybe\" is neither true nor false"
    );
    assert_eq!(
        refusal(sources(&[], &[("shards", "12")])),
        "--shards: 12 is not a power of two, 0 (32 per thread), 1, 2, 4, ... 256 are allowed"
    );
}

#[test]
fn an_overridden_mistake_is_still_a_mistake() {
    let flags = &[("threads", "2")];
    let error = load_file("threads = 1000", sources(&[], flags)).unwrap_err();
    assert_eq!(
        error,
        "fencepost.toml:1: threads: 1000 is out of range, 0 to 256 are allowed"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    assert_eq!(
        refusal_of_file("pin = true\nsesion_ttl = \"3s\"\n"),
        "fencepost.toml:2: there is no setting \"sesion_ttl\", did you mean \"session_ttl\"?"
    );
    assert_eq!(
        refusal_of_file("[limits]\nkeys_max = 3\n"),
        "fencepost.toml:1: there is no setting \"limits\", see `fencepost serve --help` for those there are"
    );
    assert_eq!(
        refusal_of_file("data-dir = 'x'"),
        "fencepost.toml:1: there is no setting \"data-dir\", did you mean \"data_dir\"?"
    );
}

#[test]
fn broken_toml_is_one_line() {
    for text in [
        "listen = \n",
        "= 3",
        "pin = true\npin = false",
        "a b c",
        "x = \"\u{7}",
    ] {
        let error = refusal_of_file(text);
        assert!(error.starts_with("fencepost.toml:"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_misspelt_variable_is_reported_and_a_stranger_is_not() {
    let loaded = sources(
        &[
            ("FENCEPOST_LISTN", "127.0.0.1:1"),
            ("FENCEPOST_SERVICE_HOST", "10.0.0.1"),
            ("FENCEPOST_PORT_7400_TCP", "tcp://10.0.0.1:7400"),
            ("FENCEPOST_SERVER", "127.0.0.1:7400"),
            ("FENCEPOST_LISTEN", ""),
        ],
        &[],
    )
    .load()
    .unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "the environment sets FENCEPOST_LISTN, which is no setting; did you mean FENCEPOST_LISTEN?"
        ]
    );
    assert_eq!(loaded.config, Config::default());
}

#[test]
fn an_address_others_can_reach_needs_tokens() {
    for address in [
        "0.0.0.0:7400",
        "[::]:7400",
        "192.168.1.5:7400",
        "[::ffff:10.0.0.1]:7400",
    ] {
        let error = refusal(sources(&[], &[("listen", address)]));
        assert!(
            error.starts_with("--listen: ") && error.contains("--auth-token-file"),
            "{error}"
        );
        let error = refusal(sources(&[("FENCEPOST_HTTP", address)], &[]));
        assert!(error.starts_with("FENCEPOST_HTTP: "), "{error}");
        let protected = &[("listen", address), ("auth_token_file", "tokens")];
        assert!(sources(&[], protected).load().is_ok());
    }
    for address in [
        "127.0.0.1:1",
        "127.8.9.1:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
        "localhost:1",
    ] {
        assert!(
            sources(&[], &[("listen", address)]).load().is_ok(),
            "{address}"
        );
    }
}

#[test]
fn two_listeners_need_two_ports() {
    let same = &[("listen", "127.0.0.1:9"), ("http", "127.0.0.1:9")];
    assert!(refusal(sources(&[], same)).starts_with("--http: 127.0.0.1:9 is what listen has too"));
    let free = &[("listen", "127.0.0.1:0"), ("http", "127.0.0.1:0")];
    assert!(sources(&[], free).load().is_ok());
}

#[test]
fn a_config_made_by_hand_is_checked_too() {
    let config = Config {
        hello_timeout: Duration::ZERO,
        ..Config::default()
    };
    assert_eq!(
        config.check().unwrap_err().to_string(),
        "hello_timeout: 0ms is out of range, 10ms to 1h are allowed"
    );
}

#[test]
fn zero_threads_and_shards_follow_the_machine() {
    let counts = |threads, shards| {
        let config = Config {
            threads,
            shards,
            ..Config::default()
        };
        (config.thread_count(), config.shard_count())
    };
    assert_eq!(counts(1, 0), (1, 32));
    assert_eq!(counts(3, 0), (3, 128));
    assert_eq!(counts(64, 0), (64, 256));
    assert_eq!(counts(4, 1), (4, 1));
    assert!(counts(0, 0).0 >= 1);
}

#[test]
fn times_are_read_as_they_are_written() {
    for (text, time_ms) in [
        ("0", 0),
        ("0s", 0),
        ("7ms", 7),
        ("1.5s", 1_500),
        ("0.001s", 1),
        ("2m", 120_000),
        ("30 s", 30_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ] {
        assert_eq!(
            parse_time(text),
            Ok(Duration::from_millis(time_ms)),
            "{text}"
        );
    }
    for text in [
        "",
        "5",
        "s",
        "-1s",
        "1.s",
        ".5s",
        "1.0005s",
        "1s2",
        "1e3s",
        "1.5ms",
        "1y",
        "99999999999999999999d",
        "213503982335d",
    ] {
        assert!(parse_time(text).is_err(), "{text}");
    }
    assert_eq!(show_time(Duration::from_millis(90_000)), "90s");
    assert_eq!(show_time(Duration::from_millis(1_500)), "1500ms");
}

#[test]
fn sizes_are_read_as_they_are_written() {
    let bytes_max = |text: &str| {
        let loaded = sources(&[], &[("bytes_max", text)]).load();
        loaded.map(|loaded| loaded.config.bytes_max).ok()
    };
    assert_eq!(bytes_max("1048576"), Some(1 << 20));
    assert_eq!(bytes_max("4_194_304"), Some(4 << 20));
    assert_eq!(bytes_max("1.5GiB"), Some(3 << 29));
    assert_eq!(bytes_max("64MiB"), Some(64 << 20));
    for text in ["1KiB", "64MB", "64", "-1", "9999999999999TiB", "MiB"] {
        assert_eq!(bytes_max(text), None, "{text}");
    }
}

#[test]
fn short_times_have_microseconds() {
    let spin = |text| {
        sources(&[], &[("spin", text)])
            .load()
            .map(|loaded| loaded.config.spin)
    };
    assert_eq!(spin("40us").ok(), Some(Duration::from_micros(40)));
    assert_eq!(spin("1ms").ok(), Some(Duration::from_millis(1)));
    assert_eq!(spin("0").ok(), Some(Duration::ZERO));
    for bad in ["40", "-1us", "1.5us", "11ms", "us"] {
        assert!(spin(bad).is_err(), "{bad}");
    }
    let config = Config {
        spin: Duration::from_micros(1_500),
        ..Config::default()
    };
    let setting = SETTINGS
        .iter()
        .find(|setting| setting.name == "spin")
        .unwrap();
    assert_eq!(setting.show(&config), "1500us");
}

/// Nodes took them, told each other and their clients, and each dialled itself.
#[test]
fn addresses_that_others_are_told_name_a_machine() {
    let node = |peers: &str, more: &[(&str, &str)]| {
        let mut flags = vec![
            ("node_id", "1"),
            ("peers", peers),
            ("durability", "lease"),
            ("cluster_key_file", "key"),
        ];
        flags.extend(more);
        sources(&[], &flags).load()
    };
    let refused = |peers: &str, more: &[(&str, &str)]| node(peers, more).unwrap_err().to_string();
    let good = "1=10.0.0.1:7500,2=10.0.0.2:7500";
    for wildcard in ["0.0.0.0:7500", "[::]:7500"] {
        let listens = [("peer_listen", wildcard), ("advertise", "10.0.0.1:7400")];
        assert!(node(good, &listens).is_ok(), "it may listen there");
        for node in [1, 2] {
            let entry = format!("{node}={wildcard}");
            let error = refused(
                &good.replace(&format!("{node}=10.0.0.{node}:7500"), &entry),
                &[],
            );
            assert!(error.starts_with(&format!("--peers: {entry} ")), "{error}");
            assert!(error.contains("--peer-listen"), "{error}");
        }
        for (setting, flag, listen) in [
            ("advertise", "--advertise", " --listen "),
            ("advertise_redis", "--advertise-redis", " --redis-listen "),
        ] {
            let error = refused(good, &[(setting, wildcard)]);
            let begin = format!("{flag}: {wildcard} stands for all");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.contains(listen), "{error}");
        }
    }
    let by_hand = Config {
        peers: Peers::new([(1, "0.0.0.0:7500".to_owned())]),
        node_id: 1,
        ..Config::default()
    };
    assert_eq!(by_hand.check().unwrap_err().setting, "peers");
}
