//! A tool that asks the nodes of a cluster for changes, as an operator's does, until they are done.

use bytes::Bytes;
use cluster::entry::Format;
use cluster::peer::{ClusterKey, Introduction, TOOL, Tcp, WIRE_VERSION, ask};
use cluster::question::{Answer, Question};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a change may take while nodes are killed.
const CHANGE_MAX: Duration = Duration::from_secs(90);

/// The pause before all nodes are asked once more.
const AGAIN: Duration = Duration::from_millis(50);

/// What a node says when an earlier question, whose answer was lost, has done it.
const DONE_BEFORE: [&str; 2] = ["is a member already", "is no member"];

/// An operator.
pub struct Operator {
    key: ClusterKey,
    /// Where the nodes listen for each other: an operator's questions take no link.
    nodes: Vec<SocketAddr>,
}

impl Operator {
    /// One that asks these nodes.
    pub fn new(key_file: &Path, nodes: Vec<SocketAddr>) -> Result<Operator, String> {
        let key = ClusterKey::from_file(key_file).map_err(|error| error.to_string())?;
        Ok(Operator { key, nodes })
    }

    /// Asks until it is done.
    pub fn change(&self, question: &Question) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("the system refused: {error}"))?;
        let question = serde_json::to_vec(question).expect("it has no maps with strange keys");
        let question = Bytes::from(question);
        let begin = Instant::now();
        let mut heard = Vec::new();
        loop {
            heard.clear();
            for node in &self.nodes {
                let answer = runtime.block_on(self.ask(*node, question.clone()));
                match answer {
                    Ok(Answer::Done(_)) => return Ok(()),
                    Ok(Answer::Error(why)) if DONE_BEFORE.iter().any(|it| why.contains(it)) => {
                        return Ok(());
                    }
                    Ok(answer) => heard.push(format!("{answer:?}")),
                    Err(why) => heard.push(why),
                }
            }
            if begin.elapsed() > CHANGE_MAX {
                let question = String::from_utf8_lossy(&question);
                return Err(format!(
                    "not done within {CHANGE_MAX:?}: {question}: {heard:#?}"
                ));
            }
            std::thread::sleep(AGAIN);
        }
    }

    async fn ask(&self, node: SocketAddr, question: Bytes) -> Result<Answer, String> {
        let tool = Introduction {
            cluster_id: 0,
            node: TOOL,
            disk_id: 0,
            version: WIRE_VERSION,
            format: Format::NEWEST.0,
        };
        let answer = ask(&Tcp, &node.to_string(), &self.key, tool, question).await;
        let answer = answer.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }
}
