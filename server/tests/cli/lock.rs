//! `fencepost lock`.

use crate::program::{
    Ended, Held, Server, UNTIL_RELEASED, ask, await_condition, end, fencepost, run,
};
use rustix::process::Signal;

/// Runs a shell script under a lock on `key`.
fn lock(server: &Server, key: &str, script: &str) -> Ended {
    run([
        "lock",
        key,
        "--server",
        &server.address,
        "--",
        "sh",
        "-c",
        script,
    ])
}

/// Takes a lock away, as an operator would.
fn force_release(server: &Server, key: &str, held: &Held) {
    let fence = held.fence.to_string();
    let released = ask(server, &["release", key, "--force", "--fence", &fence]);
    assert_eq!(released["released"], true);
}

#[test]
fn the_command_knows_its_key_and_fence() {
    let server = Server::start(&[]);
    let script = "echo \"$FENCEPOST_KEY $FENCEPOST_FENCE\"";
    let fences: Vec<u64> = (0..3)
        .map(|_| {
            let printed = lock(&server, "orders/42", script).printed();
            let (key, fence) = printed.trim().split_once(' ').unwrap();
            assert_eq!(key, "orders/42");
            fence.parse().unwrap()
        })
        .collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(ask(&server, &["query", "orders/42"])["holder_count"], 0);
}

#[test]
fn a_detached_lock_stays_until_it_is_released_by_its_fence() {
    let server = Server::start(&[]);
    let arguments = [
        "lock",
        "k",
        "--detach",
        "--ttl=600s",
        "--server",
        &server.address,
    ];
    let text = run(arguments).printed();
    let state = ask(&server, &["query", "k"]);
    let fence = state["holders"][0]["fence"].to_string();
    assert_eq!(
        text,
        format!("key      k\nfence    {fence}\nends in  10m 00s\n")
    );
    assert_eq!(state["holders"][0]["client_name"], "detached");
    let wrong = ["release", "k", "--fence", "1", "--server", &server.address];
    let complaint = run(wrong).complained(1);
    assert!(
        complaint.starts_with("there is no detached lock on k under fence 1"),
        "{complaint}"
    );
    let released = ask(&server, &["release", "k", "--fence", &fence]);
    assert_eq!(released["released"], true);
    assert_eq!(ask(&server, &["query", "k"])["holder_count"], 0);
    // It takes either a command or --detach.
    let both = [
        "lock",
        "k",
        "--detach",
        "--server",
        &server.address,
        "--",
        "true",
    ];
    run(both).complained(2);
}

#[test]
fn a_server_that_recovers_is_not_said_to_hold_nothing() {
    let data = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", data.path().display());
    let server = Server::start(&[&data_dir]);
    let arguments = [
        "lock",
        "k",
        "--detach",
        "--ttl=20s",
        "--server",
        &server.address,
    ];
    run(arguments).printed();
    server.end_by(Signal::KILL);

    let server = Server::start(&[&data_dir]);
    let at = ["--server", &server.address];
    let state = run(["query", "k"].iter().chain(&at)).printed();
    assert!(state.contains("may be held"), "{state}");
    assert!(state.contains("recovering"), "{state}");
    assert!(!state.contains("free"), "{state}");
    assert!(ask(&server, &["query", "k"])["recovering_ms"].as_u64() > Some(0));
    let list = run(["list"].iter().chain(&at));
    assert_eq!((list.code, list.stdout.as_str()), (Some(0), ""));
    assert!(list.stderr.contains("recovering"), "{list:?}");
    let lock = [
        "lock",
        "other",
        "--wait=50ms",
        "--server",
        &server.address,
        "--",
        "true",
    ];
    let complaint = run(lock).complained(75);
    assert!(complaint.contains("recovering"), "{complaint}");
    assert!(!complaint.contains("changed hands"), "{complaint}");
    let release = [
        "release",
        "k",
        "--force",
        "--fence=1",
        "--server",
        &server.address,
    ];
    let complaint = run(release).complained(1);
    assert!(complaint.contains("recovering"), "{complaint}");
    let release = ["release", "k", "--fence=1", "--server", &server.address];
    let complaint = run(release).complained(1);
    assert!(complaint.contains("recovering"), "{complaint}");
}

#[test]
fn the_exit_code_is_the_commands() {
    let server = Server::start(&[]);
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        assert_eq!(lock(&server, "k", script).code, Some(code), "{script}");
    }
    for (program, code) in [("/nowhere/at-all", 127), ("/", 126)] {
        let ended = run(["lock", "k", "--server", &server.address, "--", program]);
        let complaint = ended.complained(code);
        assert!(
            complaint.starts_with(&format!("cannot run {program}: ")),
            "{complaint}"
        );
    }
}

#[test]
fn a_lock_that_cannot_be_had_in_time_is_75_and_names_its_holder() {
    let server = Server::start(&[]);
    let held = Held::new(&server, &["k", "--note=nightly run"], UNTIL_RELEASED);
    let arguments = ["lock", "k", "--wait=0", "--server", &server.address];
    for wait in ["--wait=0", "--wait=50ms"] {
        let arguments = ["lock", "k", wait, "--server", &server.address, "--", "true"];
        let complaint = run(arguments).complained(75);
        assert!(complaint.contains(&held.fence.to_string()), "{complaint}");
        assert!(complaint.contains("nightly run"), "{complaint}");
    }
    let ended = run(arguments.iter().chain(&["--json", "--", "true"]));
    assert_eq!(ended.code, Some(75));
    let json: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(json["holder"]["fence"], held.fence);
    assert_eq!(held.release(), Some(0));
    assert_eq!(run(arguments.iter().chain(&["--", "true"])).code, Some(0));
}

#[test]
fn whoever_waits_gets_the_lock_when_it_is_released() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "k");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| Held::key(&server, "k"));
        await_condition(|| ask(&server, &["query", "k"])["queue_length"] == 1);
        let fence = held.fence;
        assert_eq!(held.release(), Some(0));
        let waiter = waiter.join().unwrap();
        assert!(waiter.fence > fence);
        assert_eq!(waiter.release(), Some(0));
    });
}

#[test]
fn shared_locks_are_held_together() {
    let server = Server::start(&[]);
    let one = Held::new(&server, &["k", "--shared"], UNTIL_RELEASED);
    let other = Held::new(&server, &["k", "--shared"], UNTIL_RELEASED);
    assert_eq!(ask(&server, &["query", "k"])["holder_count"], 2);
    assert_eq!((one.release(), other.release()), (Some(0), Some(0)));
}

#[test]
fn the_command_is_stopped_when_its_lock_is_lost() {
    let server = Server::start(&[]);
    for (script, code) in [
        // Ends by TERM.
        ("echo $FENCEPOST_FENCE; cat", 143),
        // Ignores TERM.
        ("trap '' TERM; echo $FENCEPOST_FENCE; cat", 137),
        // Ends with 0, though its lock was lost.
        (
            "trap 'exit 0' TERM; echo $FENCEPOST_FENCE; sleep 60 & wait",
            76,
        ),
        (
            "trap 'exit 9' TERM; echo $FENCEPOST_FENCE; sleep 60 & wait",
            9,
        ),
        // Leaves a process behind that ignores TERM.
        (
            "exec 3<&0; (trap '' TERM; echo $FENCEPOST_FENCE; cat <&3) & wait",
            143,
        ),
    ] {
        let held = Held::new(&server, &["k", "--kill-after=100ms"], script);
        force_release(&server, "k", &held);
        assert_eq!(held.end(), Some(code), "{script}");
    }
}

#[test]
fn the_command_is_stopped_when_the_server_is_gone_for_too_long() {
    let server = Server::start(&[]);
    let held = Held::new(&server, &["k", "--ttl=300ms"], UNTIL_RELEASED);
    drop(server);
    assert_eq!(held.end(), Some(143));
}

#[test]
fn a_lock_is_renewed_for_as_long_as_the_command_runs() {
    let server = Server::start(&[]);
    let held = Held::new(&server, &["k", "--ttl=200ms"], UNTIL_RELEASED);
    await_condition(|| {
        let lock = ask(&server, &["query", "k"]);
        assert_eq!(lock["holders"][0]["fence"], held.fence);
        lock["holders"][0]["held_ms"].as_u64().unwrap() > 600
    });
    assert_eq!(held.release(), Some(0));
}

#[test]
fn signals_reach_the_command() {
    let server = Server::start(&[]);
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::USR1, "USR1"),
    ] {
        // A background process that starts just then may miss the signal. It ends with the pipe.
        let script = format!(
            "trap 'exit 5' {name}; exec 3<&0; echo $FENCEPOST_FENCE; cat <&3 >/dev/null & wait"
        );
        let held = Held::new(&server, &["k"], &script);
        held.send(signal);
        assert_eq!(held.end(), Some(5), "{name}");
    }
}

#[test]
fn a_signal_ends_the_wait_and_leaves_no_waiter_behind() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "k");
    let mut waiter = fencepost([
        "lock",
        "k",
        "--wait=1h",
        "--server",
        &server.address,
        "--",
        "true",
    ])
    .spawn()
    .unwrap();
    await_condition(|| ask(&server, &["query", "k"])["queue_length"] == 1);
    crate::program::send(&waiter, Signal::TERM);
    assert_eq!(waiter.wait().unwrap().code(), Some(143));
    await_condition(|| ask(&server, &["query", "k"])["queue_length"] == 0);
    assert_eq!(held.release(), Some(0));
}

#[test]
fn without_a_server_the_command_is_not_run() {
    let ended = end(&mut fencepost([
        "lock",
        "k",
        "--server=127.0.0.1:1",
        "--",
        "echo",
        "ran",
    ]));
    let complaint = ended.complained(69);
    assert!(complaint.contains("127.0.0.1:1"), "{complaint}");
}

/// It worked on without a lock, and the next holder joined it when the lease was over.
#[test]
fn a_command_ends_with_the_program_that_holds_its_lock() {
    let server = Server::start(&[]);
    let held = Held::new(
        &server,
        &["k"],
        "trap '' TERM; echo $FENCEPOST_FENCE; exec cat",
    );
    held.send(Signal::KILL);
    // Its standard input stays open: only a signal ends it.
    assert_eq!(held.end(), None);
}

/// The kernel tells only a process that asked in time of its parent's end.
#[test]
fn a_command_whose_holder_is_gone_already_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let trace = trace.to_str().unwrap();
    let complaint = run(["tied", "1", "--", "touch", trace]).complained(76);
    assert!(complaint.contains("was not started"), "{complaint}");
    assert!(!std::path::Path::new(trace).exists());
    let here = std::process::id().to_string();
    run(["tied", &here, "--", "touch", trace]).printed();
    assert!(std::path::Path::new(trace).exists());
    // It is not for people to type.
    assert!(!run(["--help"]).printed().contains("tied"));
}
