//! The commands on a cluster: how its nodes stand, and who belongs to it. They ask the peer port of
//! any node; what only the leader can do goes on to the leader. `cluster/backup.rs` writes backups,
//! `cluster/founding.rs` makes new clusters from them and from directories.

mod backup;
mod founding;

use super::connect::run_async;
use super::failure::{Code, Failure, complain, print};
use super::nodes::{Asker, NodeArgs, Silence};
use super::text::{Align, Table, plural, time};
use super::view::to_line;
use clap::{Args, Subcommand};
use cluster::question::{Answer, MemberStatus, Question, Status};
use serde::Serialize;
use server::config::Peers;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use wal::Utc;

/// The role of a node that leads, or led and does not know that it is cut off.
const LEADER: &str = "leader";

const NOTES: &str = "\
Any node will do: it names the leader, and the command goes on there.

Examples:
  How the nodes stand:
    fencepost cluster status --node 10.0.0.1:7500 --cluster-key-file cluster.key

  A fourth node. Start it first, without --bootstrap, with itself and the others in its --peers:
    fencepost cluster add 4=10.0.0.4:7500 --node 10.0.0.1:7500 --cluster-key-file cluster.key

  A node is lost with its disk. Its id is not used again; a new node takes its place:
    fencepost cluster remove 3 --node 10.0.0.1:7500 --cluster-key-file cluster.key
    fencepost cluster add 4=10.0.0.4:7500 --node 10.0.0.1:7500 --cluster-key-file cluster.key

Exit codes:
   0  done; status: a node leads a majority
   1  the leader said no, and why; status: there is no leader
   2  a flag or an argument is wrong
  69  no node can be reached
  74  backup, restore, adopt: a file cannot be written, or the disk is full
  77  the nodes have another key";

/// A node that is added may need so long without a word of what is waited for.
const QUIET_MAX: Duration = Duration::from_secs(3);

/// Look at a cluster, change who belongs to it, back it up, make one
#[derive(Args)]
#[command(after_help = NOTES, disable_help_subcommand = true)]
pub(super) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    Status(StatusArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
    Transfer(TransferArgs),
    Backup(backup::BackupArgs),
    Restore(founding::RestoreArgs),
    Adopt(founding::AdoptArgs),
}

/// Show how each node stands, and which ones do not answer
#[derive(Args)]
#[command(after_help = "\
SINCE is when the node took its role, by its own wall clock, VOTE is no for a node that was added and has not caught up: it counts for no majority (with --json: votes). \
COMMITTED is the last entry that is committed, as the node knows it, APPLIED the last that the node has applied, \
LAG is how many entries a node is behind the end of the leader's log, HEARD how long ago the leader heard from it, CLOCK the \
cluster's clock as the node knows it, HASH that of the ledger when the nodes last compared theirs.")]
struct StatusArgs {
    #[command(flatten)]
    nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Add a node: it catches up first, and then has a vote
#[derive(Args)]
struct AddArgs {
    /// Its id, which no node has had before, and where the others reach it
    #[arg(value_name = "ID=HOST:PORT")]
    member: String,
    #[command(flatten)]
    nodes: NodeArgs,
}

/// Take a node out. Stop it afterwards; its id is not used again
#[derive(Args)]
struct RemoveArgs {
    /// Its id
    #[arg(value_name = "ID")]
    member: u64,
    #[command(flatten)]
    nodes: NodeArgs,
}

/// Have another node lead
#[derive(Args)]
struct TransferArgs {
    /// Its id
    #[arg(value_name = "ID")]
    member: u64,
    #[command(flatten)]
    nodes: NodeArgs,
}

pub(super) fn run(args: &ClusterArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ClusterCommand::Status(args) => status(args),
        ClusterCommand::Add(args) => add(args),
        ClusterCommand::Remove(args) => {
            change(&args.nodes, &Question::Remove { node: args.member })
        }
        ClusterCommand::Transfer(args) => {
            change(&args.nodes, &Question::Transfer { to: args.member })
        }
        ClusterCommand::Backup(args) => backup::run(args),
        ClusterCommand::Restore(args) => founding::restore(args),
        ClusterCommand::Adopt(args) => founding::adopt(args),
    }
}

fn add(args: &AddArgs) -> Result<ExitCode, Failure> {
    let parsed = Peers::parse(&args.member).map_err(Failure::usage)?;
    let mut named = parsed.iter();
    let (Some((node, peer)), None) = (named.next(), named.next()) else {
        return Err(Failure::usage(
            "one node is added at a time: write its id and address, like 4=10.0.0.4:7500",
        ));
    };
    parsed.check().map_err(Failure::usage)?;
    // Where clients reach it, the node says itself.
    let question = Question::Add {
        node,
        peer: peer.to_owned(),
        client: String::new(),
        redis: String::new(),
    };
    change(&args.nodes, &question)
}

/// Has the leader do something, and prints what it says.
fn change(nodes: &NodeArgs, question: &Question) -> Result<ExitCode, Failure> {
    let (asker, addresses) = (nodes.asker()?, nodes.addresses()?);
    let (address, answer) = run_async(async {
        let asked = asker.ask_leader(&addresses, question);
        tokio::pin!(asked);
        match tokio::time::timeout(QUIET_MAX, &mut asked).await {
            Ok(answered) => answered,
            Err(_elapsed) => {
                if let Question::Add { node, .. } = question {
                    complain(&format!("waiting for node {node} to catch up"));
                }
                asked.await
            }
        }
    })?;
    match answer {
        Answer::Done(done) => {
            print(&format!("{done}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Error(why) => Err(Failure::new(Code::No, why)),
        other => Err(unexpected(&address, &other)),
    }
}

fn unexpected(address: &str, answer: &Answer) -> Failure {
    let kind = match answer {
        Answer::Status(_) => "a status",
        Answer::Leader { .. } => "another leader",
        _ => "something else",
    };
    let message = format_args!("{address} answered with {kind}, which was not asked for");
    Failure::new(Code::Internal, message)
}

fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let (asker, addresses) = (args.nodes.asker()?, args.nodes.addresses()?);
    let view = run_async(async {
        let first = asker.first_status(&addresses).await?;
        Ok(View::look(&asker, first).await)
    })?;
    print(&match args.json {
        true => to_line(&view),
        false => view.to_text(),
    })?;
    if !args.json {
        for node in view.nodes.iter().filter(|node| node.status.is_none()) {
            let why = node.silence.as_deref().unwrap_or("no answer");
            complain(&format!("node {} does not answer: {why}", node.member.node));
        }
    }
    Ok(match view.leader {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(Code::No as u8),
    })
}

/// A cluster, as its nodes tell it.
#[derive(Serialize)]
struct View {
    cluster: String,
    term: u64,
    leader: Option<u64>,
    /// The node that led last and hears no majority.
    #[serde(skip)]
    led: Option<u64>,
    nodes: Vec<NodeView>,
}

/// One node.
#[derive(Serialize)]
struct NodeView {
    #[serde(flatten)]
    member: MemberStatus,
    /// `None`: it did not answer.
    status: Option<Status>,
    /// Why it did not.
    silence: Option<String>,
}

impl View {
    /// Asks all members at once.
    async fn look(asker: &Asker, first: Status) -> View {
        let mut asking = tokio::task::JoinSet::new();
        for member in &first.members {
            let (asker, node, peer) = (asker.clone(), member.node, member.peer.clone());
            asking.spawn(async move { (node, asker.status(&peer).await) });
        }
        let answers: Vec<(u64, Result<Status, Silence>)> = asking.join_all().await;
        let mut answers: BTreeMap<_, _> = answers.into_iter().collect();
        // A node that waits to be added knows no members.
        if first.members.is_empty() {
            let of_itself = MemberStatus {
                node: first.node,
                votes: false,
                peer: String::new(),
                client: String::new(),
                redis: String::new(),
                matched_index: None,
                heard_ms: None,
            };
            answers.insert(first.node, Ok(first.clone()));
            return View::new(&first, vec![of_itself], answers);
        }
        // The leader of the latest term knows most of the others; without one, the node that led.
        let leader = answers.values().flatten();
        let leader = leader.filter(|status| status.role == LEADER);
        let leader = leader.max_by_key(|status| (status.leads(), status.term));
        let leader = leader.cloned();
        let members = leader.as_ref().unwrap_or(&first).members.clone();
        View::new(leader.as_ref().unwrap_or(&first), members, answers)
    }

    fn new(
        best: &Status,
        members: Vec<MemberStatus>,
        mut answers: BTreeMap<u64, Result<Status, Silence>>,
    ) -> View {
        let nodes = members.into_iter().map(|member| {
            let (status, silence) = match answers.remove(&member.node) {
                Some(Ok(status)) => (Some(status), None),
                Some(Err(silence)) => (None, Some(silence.to_string())),
                None => (None, Some("it joined a moment ago".to_owned())),
            };
            NodeView {
                member,
                status,
                silence,
            }
        });
        View {
            cluster: best.cluster.clone(),
            term: best.term,
            leader: best.leads().then_some(best.node),
            led: (best.role == LEADER && !best.leads()).then_some(best.node),
            nodes: nodes.collect(),
        }
    }

    fn to_text(&self) -> String {
        let mut table = Table::new(&[
            ("NODE", Align::Right),
            ("ROLE", Align::Left),
            ("SINCE", Align::Left),
            ("VOTE", Align::Left),
            ("TERM", Align::Right),
            ("COMMITTED", Align::Right),
            ("APPLIED", Align::Right),
            ("LAG", Align::Right),
            ("HEARD", Align::Right),
            ("CLOCK", Align::Left),
            ("HASH", Align::Left),
            ("PEERS", Align::Left),
            ("CLIENTS", Align::Left),
            ("REDIS", Align::Left),
        ]);
        let leader = self
            .nodes
            .iter()
            .find(|node| Some(node.member.node) == self.leader);
        let leader = leader.and_then(|leader| leader.status.as_ref());
        for node in &self.nodes {
            table.row(node.row(leader));
        }
        let voters = self.nodes.iter().filter(|node| node.member.votes).count();
        let learners = self.nodes.len() - voters;
        let voters = match learners {
            0 => plural(voters as u64, "voter"),
            _ => format!(
                "{}, {} without a vote",
                plural(voters as u64, "voter"),
                plural(learners as u64, "node")
            ),
        };
        let answering = self
            .nodes
            .iter()
            .filter(|node| node.status.is_some())
            .count();
        let cluster = match self.cluster.as_str() {
            "" => "no cluster yet".to_owned(),
            cluster => format!("cluster {cluster}"),
        };
        let who = match (self.leader, self.led) {
            (Some(leader), _) => format!("node {leader} leads in term {}", self.term),
            (None, Some(led)) => format!(
                "no leader: node {led} led in term {} and hears from no majority of the voters",
                self.term
            ),
            (None, None) => "no leader: a majority of the voters must be up".to_owned(),
        };
        format!(
            "{cluster}, {who}; {voters}, {answering} of {} answer\n\n{table}",
            plural(self.nodes.len() as u64, "node")
        )
    }
}

impl NodeView {
    fn row(&self, leader: Option<&Status>) -> Vec<String> {
        let member = &self.member;
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        let heard = member.heard_ms.map(|ms| time(Duration::from_millis(ms)));
        let heard = heard.unwrap_or_default();
        let mut row = vec![member.node.to_string()];
        let vote = if member.votes { "yes" } else { "no" };
        match &self.status {
            None => {
                row.extend(["no answer", "-", vote].map(str::to_owned));
                let lag = lag(leader, member.matched_index);
                row.extend(
                    ["-", "-", "-", &or_dash(&lag), &or_dash(&heard), "-", "-"].map(str::to_owned),
                );
            }
            Some(status) => {
                let role = match status.role.as_str() {
                    "follower" if !member.votes => "learner",
                    LEADER if !status.leads() => "led",
                    role => role,
                };
                let since = unix_time(status.role_since_unix_ms);
                row.extend([role, &since, vote].map(str::to_owned));
                row.push(status.term.to_string());
                row.push(match status.committed_index {
                    0 => "-".to_owned(),
                    committed_index => committed_index.to_string(),
                });
                row.push(status.applied_index.to_string());
                row.push(or_dash(&lag(leader, Some(status.applied_index))));
                row.push(or_dash(&heard));
                row.push(unix_time(status.clock_ms));
                row.push(match status.hash {
                    0 => "-".to_owned(),
                    hash => format!("{hash:016x}"),
                });
            }
        }
        row.extend([&member.peer, &member.client, &member.redis].map(|text| or_dash(text)));
        row
    }
}

/// A time in milliseconds since 1970. 0: it is not known.
fn unix_time(unix_ms: u64) -> String {
    match unix_ms {
        0 => "-".to_owned(),
        unix_ms => Utc(unix_ms).to_string(),
    }
}

/// How far behind the end of the leader's log this is.
fn lag(leader: Option<&Status>, index: Option<u64>) -> String {
    match (leader, index) {
        (Some(leader), Some(index)) => leader.last_index.saturating_sub(index).to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
