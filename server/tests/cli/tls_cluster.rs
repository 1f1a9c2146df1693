//! A cluster whose nodes speak TLS with each other.

use crate::cluster::Cluster;
use crate::program::{await_condition, end};
use crate::tls::{client, has_line, open};
use rustix::process::Signal;
use std::io::{Read, Write};
use tls::issue::{Authority, Issued};

fn peer_flags(authority: &Authority, own: &Issued) -> Vec<String> {
    vec![
        format!("--peer-tls-ca-file={}", authority.file().display()),
        format!("--peer-tls-cert-file={}", own.cert.display()),
        format!("--peer-tls-key-file={}", own.key.display()),
        "--bootstrap".to_owned(),
    ]
}

fn tool_flags(authority: &Authority, own: &Issued) -> Vec<(&'static str, String)> {
    vec![
        ("FENCEPOST_TLS_CA", authority.file().display().to_string()),
        ("FENCEPOST_TLS_CERT", own.cert.display().to_string()),
        ("FENCEPOST_TLS_KEY", own.key.display().to_string()),
    ]
}

#[test]
fn nodes_talk_only_to_those_of_their_authority() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let others = Authority::new(dir.path(), "others");
    let node = |authority: &Authority, id: u64| authority.issue(&format!("node-{id}"));
    let start = |cluster: &mut Cluster, id, signed_by: &Authority| {
        let flags = peer_flags(&authority, &node(signed_by, id));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        cluster.start_node(id, &flags);
    };
    let mut cluster = Cluster::with_ports(3);
    start(&mut cluster, 1, &authority);
    start(&mut cluster, 2, &authority);
    start(&mut cluster, 3, &others);
    let tool = tool_flags(&authority, &authority.issue("tool"));
    let status = |cluster: &Cluster, tool: &[(&str, String)]| {
        let mut command = cluster.command(&["status", "--json"]);
        end(command.envs(tool.iter().cloned()))
    };
    let leads = |cluster: &Cluster| {
        let ended = status(cluster, &tool);
        let status = serde_json::from_str(&ended.stdout).unwrap_or(serde_json::Value::Null);
        status["leader"].as_u64()
    };
    await_condition(|| leads(&cluster).is_some());
    assert_ne!(leads(&cluster), Some(3), "node 3 has no part in it");
    let fence = cluster.detach("k");
    let page = cluster.get(leads(&cluster).unwrap(), "/metrics");
    let left = page.lines().find_map(|line| {
        let value = line.strip_prefix("fencepost_peer_tls_certificate_expires_in_seconds ");
        value?.parse::<f64>().ok()
    });
    assert!(left.is_some_and(|left| left > 0.0), "{left:?}");
    // Each side says why.
    await_condition(|| has_line(&cluster.nodes[&3], "no TLS with the peer"));
    let refuses = |id| {
        has_line(
            &cluster.nodes[&id],
            "signed by no authority that is trusted here",
        )
    };
    await_condition(|| refuses(1) || refuses(2));
    // A scan of a peer port: no certificate, another authority's, an expired one, no TLS at all.
    let peer = cluster.peers[&1].to_string();
    let strangers = [
        None,
        Some(others.issue("wrong")),
        Some(authority.issue_expired("old")),
    ];
    for own in &strangers {
        let mut stream = open(&peer, &client(&authority, own.as_ref()));
        let heard = stream
            .write_all(b"hello")
            .and_then(|()| stream.read(&mut [0; 16]));
        assert!(heard.is_err(), "{own:?}: {heard:?}");
    }
    let mut plain = std::net::TcpStream::connect(&peer).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // A tool is a peer as well.
    let without = status(&cluster, &[]);
    assert_ne!(without.code, Some(0), "{without:?}");
    let wrong = tool_flags(&authority, &others.issue("tool"));
    assert_ne!(status(&cluster, &wrong).code, Some(0));
    // With the right certificate the third node comes in, and can keep the lock with one other.
    cluster.stop_node(3, Signal::KILL);
    start(&mut cluster, 3, &authority);
    let gone = leads(&cluster).unwrap();
    cluster.stop_node(gone, Signal::KILL);
    await_condition(|| leads(&cluster).is_some_and(|leader| leader != gone));
    assert_eq!(cluster.fence_of_holder("k"), Some(fence));
}
