//! `/cluster`: how this node stands; and, as POST, what `fencepost cluster` does with the cluster's
//! key, here for those that have a token with the role *operate* and no prefixes:
//!
//! | path                         | what                                               |
//! |------------------------------|----------------------------------------------------|
//! | `/cluster/add?node=&peer=`   | adds a node: it catches up first, then has a vote  |
//! | `/cluster/remove?node=`      | takes a node out                                   |
//! | `/cluster/transfer?to=`      | has another node lead                              |
//!
//! Only the leader does these. Another node names it.

use super::parameters::{Change, change_of};
use super::sender::{check_meant, trace_of};
use super::{Sender, Sent, View, answer, forbid, json, refuse};
use crate::rights::{Entitlement, Role};
use crate::session::operator::Operator;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use cluster::node::Node;
use cluster::question::{Answer, Question};
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct Done<'a> {
    done: &'a str,
}

/// `/cluster`
pub(super) async fn status(State(view): State<Arc<View>>) -> Response {
    match node_of(&view) {
        None => no_cluster(),
        Some(node) => {
            let status = node.status().await;
            let json = serde_json::to_string(&status).expect("it has no maps");
            answer(StatusCode::OK, "application/json", json)
        }
    }
}

/// `/cluster/{what}`
pub(super) async fn change(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    Extension(Sender(address)): Extension<Sender>,
    Path(what): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if let Err(sentence) = check_meant(&headers, view.shared().rights.is_required()) {
        return refuse(StatusCode::FORBIDDEN, sentence);
    }
    let change = match change_of(&what, uri.query().unwrap_or("")) {
        Ok(change) => change,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    if !entitlement.may_operate() {
        return forbid(&view, &entitlement, Role::Operate, &sent);
    }
    let Some(node) = node_of(&view) else {
        return no_cluster();
    };
    let told = change.to_string();
    tracing::info!(change = told, by = entitlement.shown_name(), %address, "the cluster is to be changed, over HTTP");
    // A task of its own: a sender that goes away leaves no change half done.
    let answered = tokio::spawn(async move { node.answer(question_of(change)).await });
    let Ok(answered) = answered.await else {
        let sentence = "it is not known whether this was done: look at /cluster";
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, sentence);
    };
    match answered {
        Answer::Done(done) => {
            if let Some(audit) = view.shared().audit() {
                let operator = Operator {
                    token_name: entitlement.name().clone(),
                    address: address.to_string().into(),
                    trace_id: trace_of(&headers),
                };
                audit.cluster_changed(Arc::new(operator), told);
            }
            json(StatusCode::OK, &Done { done: &done })
        }
        Answer::Leader { node, peer } => {
            let sentence = format!(
                "node {node} leads, which other nodes reach at {peer}: ask that node over HTTP"
            );
            refuse(StatusCode::SERVICE_UNAVAILABLE, &sentence)
        }
        Answer::Error(why) => refuse(StatusCode::CONFLICT, &why),
        Answer::Status(_) | Answer::Image { .. } => {
            unreachable!("a change is answered with neither")
        }
    }
}

/// `None` for a server that is no node.
fn node_of(view: &View) -> Option<Node> {
    let shared = view.shared();
    shared.cluster.as_ref().map(|cluster| cluster.node.clone())
}

fn no_cluster() -> Response {
    let sentence = "this is a server by itself, not a node of a cluster";
    refuse(StatusCode::NOT_FOUND, sentence)
}

fn question_of(change: Change) -> Question {
    match change {
        // Where clients reach it, the node says itself.
        Change::Add { node, peer } => Question::Add {
            node,
            peer,
            client: String::new(),
            redis: String::new(),
        },
        Change::Remove { node } => Question::Remove { node },
        Change::Transfer { to } => Question::Transfer { to },
    }
}
