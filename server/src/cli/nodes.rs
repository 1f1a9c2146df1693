//! Reaching the nodes of a cluster at their peer ports: the flags for it, and the sentence for each
//! failure.

use super::failure::{Code, Failure, complain};
use super::text::time;
use super::tls::TlsArgs;
use clap::Args;
use cluster::entry::Format;
use cluster::peer::{AskError, ClusterKey, Introduction, TOOL, WIRE_VERSION, Wire, ask};
use cluster::question::{Answer, Question, Status};
use server::config::parse_time;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How many answers may name another node as the leader, while the leadership changes.
const HOPS_MAX: usize = 8;

/// How long the named node has to notice that it leads.
const HOP_PAUSE: Duration = Duration::from_millis(25);

/// Where nodes are, and the key that they want to see.
#[derive(Args)]
pub(super) struct NodeArgs {
    /// Where other nodes reach any node of the cluster, as HOST:PORT; several with commas between
    /// them
    #[arg(
        long,
        value_name = "ADDR",
        env = "FENCEPOST_NODE",
        hide_env_values = true,
        default_value = "127.0.0.1:7500",
        help_heading = "Cluster"
    )]
    node: String,
    /// The file with the cluster's key, the same that the nodes have
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_CLUSTER_KEY_FILE",
        hide_env_values = true,
        help_heading = "Cluster"
    )]
    cluster_key_file: PathBuf,
    /// How long a node may take to say how it stands
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s", help_heading = "Cluster")]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Why a node gave no answer that can be used.
#[derive(Debug)]
pub(super) enum Silence {
    /// It cannot be reached, or is too slow.
    NoAnswer(String),
    /// It does not talk to us.
    Refused(String),
    /// What it said cannot be read.
    Unreadable(String),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::NoAnswer(why) | Silence::Refused(why) | Silence::Unreadable(why) => {
                f.write_str(why)
            }
        }
    }
}

/// Asks nodes.
#[derive(Clone)]
pub(super) struct Asker {
    key: ClusterKey,
    wire: Wire,
    timeout: Duration,
}

impl NodeArgs {
    /// The addresses that were given.
    pub(super) fn addresses(&self) -> Result<Vec<String>, Failure> {
        let addresses = self.node.split(',').map(str::trim);
        let addresses = addresses.filter(|address| !address.is_empty());
        let addresses: Vec<String> = addresses.map(str::to_owned).collect();
        match addresses.is_empty() {
            true => Err(Failure::usage(
                "--node names no address, like 10.0.0.1:7500",
            )),
            false => Ok(addresses),
        }
    }

    /// Reads the key.
    pub(super) fn asker(&self) -> Result<Asker, Failure> {
        let key = ClusterKey::from_file(&self.cluster_key_file).map_err(Failure::usage)?;
        if let Some(warning) = ClusterKey::warning(&self.cluster_key_file) {
            complain(&warning);
        }
        let wire = self.tls.wire()?;
        Ok(Asker {
            wire,
            ..Asker::new(key, self.timeout)
        })
    }
}

impl Asker {
    pub(super) fn new(key: ClusterKey, timeout: Duration) -> Self {
        Asker {
            key,
            wire: Wire::default(),
            timeout,
        }
    }

    /// Asks one node.
    pub(super) async fn ask(&self, address: &str, question: &Question) -> Result<Answer, Silence> {
        let question = serde_json::to_vec(question).expect("questions are plain values");
        let who = Introduction {
            cluster_id: 0,
            node: TOOL,
            disk_id: 0,
            version: WIRE_VERSION,
            format: Format::NEWEST.0,
        };
        let asked = ask(&self.wire, address, &self.key, who, question.into()).await;
        let answer = asked.map_err(|error| match error {
            AskError::Refused { .. } => Silence::Refused(error.to_string()),
            _ => Silence::NoAnswer(error.to_string()),
        })?;
        serde_json::from_slice(&answer).map_err(|error| {
            Silence::Unreadable(format!(
                "what {address} answered cannot be read: {error}. Are node and tool of about the same version?"
            ))
        })
    }

    /// How one node stands.
    pub(super) async fn status(&self, address: &str) -> Result<Status, Silence> {
        let asked = self.ask(address, &Question::Status);
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(Answer::Status(status))) => Ok(status),
            Ok(Ok(Answer::Error(why))) => Err(Silence::NoAnswer(format!("{address}: {why}"))),
            Ok(Ok(other)) => Err(Silence::Unreadable(format!(
                "{address} answered something else: {other:?}"
            ))),
            Ok(Err(silence)) => Err(silence),
            Err(_) => Err(Silence::NoAnswer(format!(
                "{address} did not answer within {}",
                time(self.timeout)
            ))),
        }
    }

    /// How the first of these nodes stands that answers.
    pub(super) async fn first_status(&self, addresses: &[String]) -> Result<Status, Failure> {
        let mut silences = Vec::new();
        for address in addresses {
            match self.status(address).await {
                Ok(status) => return Ok(status),
                Err(silence) => silences.push(silence),
            }
        }
        Err(none_of(&silences))
    }

    /// Asks the leader, wherever it is; with the address that answered.
    pub(super) async fn ask_leader(
        &self,
        addresses: &[String],
        question: &Question,
    ) -> Result<(String, Answer), Failure> {
        let mut next: VecDeque<String> = addresses.iter().cloned().collect();
        let mut silences = Vec::new();
        let mut hops = 0;
        while let Some(address) = next.pop_front() {
            match self.ask(&address, question).await {
                // A node may be named that was asked before: a leader that is taken out hands over.
                Ok(Answer::Leader { peer, .. }) if hops < HOPS_MAX => {
                    hops += 1;
                    tokio::time::sleep(HOP_PAUSE).await;
                    next.push_front(peer);
                }
                Ok(Answer::Leader { .. }) => {}
                Ok(answer) => return Ok((address, answer)),
                Err(silence) => silences.push(silence),
            }
        }
        if silences.is_empty() {
            return Err(Failure::new(
                Code::No,
                "the nodes name each other as the leader: the leadership is changing. Try again",
            ));
        }
        Err(none_of(&silences))
    }
}

fn none_of(silences: &[Silence]) -> Failure {
    let said: Vec<String> = silences.iter().map(Silence::to_string).collect();
    let said = said.join("; ");
    let is_refused = silences
        .iter()
        .any(|silence| matches!(silence, Silence::Refused(_)));
    match is_refused {
        true => Failure::new(
            Code::Refused,
            format_args!("{said}. Is --cluster-key-file the one that the nodes have?"),
        ),
        false => Failure::new(
            Code::Unreachable,
            format_args!(
                "{said}. Say with --node HOST:PORT where other nodes reach one of them: its address in --peers"
            ),
        ),
    }
}
