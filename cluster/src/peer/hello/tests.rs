use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

struct Door {
    us: Introduction,
    refusal: Option<String>,
}

impl Gate for Door {
    fn introduce(&self) -> Introduction {
        self.us
    }

    fn admit(&self, _peer: &Introduction) -> Result<(), String> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    async fn answer(&self, question: Bytes) -> Bytes {
        question
    }
}

fn node(node: NodeId) -> Introduction {
    Introduction {
        cluster_id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        node,
        disk_id: 0xd15c,
        version: WIRE_VERSION,
        format: 3,
    }
}

fn key() -> ClusterKey {
    ClusterKey::new([7; KEY_BYTES])
}

struct Case {
    connector: Introduction,
    connector_key: ClusterKey,
    lane: Lane,
    target: Option<NodeId>,
    admitted: Result<(), String>,
    door: Door,
}

fn case() -> Case {
    Case {
        connector: node(1),
        connector_key: key(),
        lane: Lane::Control,
        target: Some(2),
        admitted: Ok(()),
        door: Door {
            us: node(2),
            refusal: None,
        },
    }
}

/// What the two sides say of a hello: the connector first.
type Said = (Result<(), String>, Result<(Introduction, Lane), String>);

async fn greet(case: Case) -> Said {
    let (near, far) = duplex(64);
    let connecting = async {
        let Case {
            connector_key,
            connector,
            lane,
            target,
            admitted,
            ..
        } = &case;
        let admit = |_: &Introduction| admitted.clone();
        let connected = connect(near, connector_key, *connector, *lane, *target, admit).await;
        connected.map(|_| ()).map_err(|error| error.to_string())
    };
    let key = key();
    let accepting = async {
        let accepted = accept(far, &key, &case.door).await;
        let accepted = accepted.map(|(_, peer, lane)| (peer, lane));
        accepted.map_err(|error| error.to_string())
    };
    tokio::join!(connecting, accepting)
}

fn both_say(said: &Said, what: &str) {
    let connector = said.0.as_ref().unwrap_err();
    let acceptor = said.1.as_ref().unwrap_err();
    assert!(connector.contains(what), "connector: {connector}");
    assert!(acceptor.contains(what), "acceptor: {acceptor}");
}

#[tokio::test]
async fn two_nodes_with_the_same_key_are_introduced() {
    let (connector, acceptor) = greet(case()).await;
    assert_eq!(connector, Ok(()));
    assert_eq!(acceptor, Ok((node(1), Lane::Control)));
}

#[tokio::test]
async fn another_key_is_refused() {
    let case = Case {
        connector_key: ClusterKey::new([8; KEY_BYTES]),
        ..case()
    };
    // The connector finds out first: the acceptor proves itself before it.
    both_say(&greet(case).await, "another cluster key");
}

#[tokio::test]
async fn what_a_gate_refuses_is_refused_with_its_sentence() {
    let mut refusing = case();
    refusing.door.refusal = Some("node 1 lost its disk: remove it first".into());
    both_say(&greet(refusing).await, "node 1 lost its disk");
    let refusing = Case {
        admitted: Err("node 2 is of another cluster".into()),
        ..case()
    };
    both_say(&greet(refusing).await, "node 2 is of another cluster");
}

#[tokio::test]
async fn a_wrong_node_at_an_address_is_refused() {
    let case = Case {
        target: Some(3),
        ..case()
    };
    both_say(&greet(case).await, "node 2 is at the address of node 3");
}

#[tokio::test]
async fn an_old_version_is_refused_on_both_sides() {
    let mut old = case();
    old.connector.version = WIRE_VERSION_MIN - 1;
    both_say(&greet(old).await, "upgrade node 1 first");
    let mut old = case();
    old.door.us.version = WIRE_VERSION_MIN - 1;
    both_say(&greet(old).await, "upgrade node 2 first");
    let mut newer = case();
    newer.connector.version = WIRE_VERSION + 7;
    assert!(greet(newer).await.1.is_ok());
}

#[tokio::test]
async fn a_tool_can_only_ask() {
    let mut tool = case();
    tool.connector.node = TOOL;
    both_say(&greet(tool).await, "a tool can only ask");
    let mut tool = case();
    tool.connector.node = TOOL;
    tool.lane = Lane::Ask;
    assert!(greet(tool).await.1.is_ok());
}

/// What the acceptor proved is no proof of the connector: it cannot be sent back.
#[tokio::test]
async fn a_reflected_proof_is_refused() {
    let (mut near, far) = duplex(1024);
    let attacking = async {
        let challenge = [9; CHALLENGE_BYTES];
        let mut hello = frame_of(kind::HELLO, &[&MAGIC, &introduction_bytes(&node(1))]);
        hello.push(Lane::Control.code());
        hello.extend(challenge);
        let length = (hello.len() - 4) as u32;
        hello[..4].copy_from_slice(&length.to_le_bytes());
        near.write_all(&hello).await.unwrap();
        let mut reply = vec![0; 4 + 9 + INTRODUCTION_BYTES + CHALLENGE_BYTES + KEY_BYTES];
        near.read_exact(&mut reply).await.unwrap();
        let proof = &reply[reply.len() - KEY_BYTES..];
        near.write_all(&frame_of(kind::PROOF, &[proof]))
            .await
            .unwrap();
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest[4], kind::REFUSED);
    };
    let door = case().door;
    let key = key();
    let accepting = async {
        // Dropped at the end, which closes the stream.
        let accepted = accept(far, &key, &door).await;
        let error = accepted.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("another cluster key"), "{error}");
    };
    tokio::join!(attacking, accepting);
}

fn frame_of(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend([0; 8]);
    parts.iter().for_each(|part| body.extend(*part));
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

#[test]
fn introductions_and_proofs_have_the_bytes_of_the_document() {
    let transcript = Transcript {
        lane: Lane::Append,
        connector: node(1),
        acceptor: node(2),
        connector_challenge: [0x11; CHALLENGE_BYTES],
        acceptor_challenge: [0x22; CHALLENGE_BYTES],
    };
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let document = include_str!("../../../../docs/cluster-wire.md");
    for vector in [
        hex(&introduction_bytes(&node(1))),
        hex(&transcript.prove(&key(), Role::Connector)),
        hex(&transcript.prove(&key(), Role::Acceptor)),
    ] {
        assert!(document.contains(&vector), "not in the document: {vector}");
    }
    let bytes = introduction_bytes(&node(1));
    let read = read_introduction(&mut Reader::new(bytes.to_vec().into()));
    assert_eq!(read, Ok(node(1)));
}

#[test]
fn a_refusal_cannot_break_the_log() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (near, mut far) = duplex(1024);
        let refusal = frame_of(kind::REFUSED, &[b"no\nforged line\x1b[2J \xff"]);
        far.write_all(&refusal).await.unwrap();
        let mut connection = Connection::new(near, HELLO_BYTES_MAX);
        let error = receive(&mut connection, kind::CHALLENGE)
            .await
            .err()
            .unwrap();
        let sentence = error.to_string();
        assert!(!sentence.chars().any(char::is_control), "{sentence:?}");
    });
}

/// Each length was a reason of its own, so 1,000 connections wrote 64 lines, and kept those about
/// nodes of the cluster back.
#[tokio::test]
async fn bytes_of_strangers_do_not_choose_the_reason() {
    let reason = async |length: u32, kind: u8| {
        let (mut stranger, stream) = duplex(64);
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend([0; 8]);
        stranger.write_all(&bytes).await.unwrap();
        let accepted = accept(stream, &key(), &case().door).await;
        accepted.err().expect("it is no hello").to_string()
    };
    let impossible = reason(0, 1).await;
    for length in [8, 1_025, 0x5550_4f53, u32::MAX] {
        assert_eq!(reason(length, 1).await, impossible);
    }
    let unknown = reason(9, 0).await;
    for kind in [kind::PROOF, kind::APPEND, 0x77, 0xff] {
        assert_eq!(reason(9, kind).await, unknown);
    }
}
