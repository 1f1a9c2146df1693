//! Opening a connection to a peer.

use super::complaint::Complaints;
use super::connection::{Connection, ConnectionError};
use super::key::ClusterKey;
use super::transport::Transport;
use super::{CONNECT_TIMEOUT, Gate, Introduction, Lane, hello};
use crate::types::NodeId;
use std::sync::Arc;
use tokio::time::timeout;

/// What all connections of a node are opened with.
pub(super) struct Shared<T, G> {
    pub(super) transport: T,
    pub(super) key: ClusterKey,
    pub(super) gate: Arc<G>,
    pub(super) complaints: Complaints,
}

/// Opens connections to one node.
pub(super) struct Dialer<T, G> {
    pub(super) shared: Arc<Shared<T, G>>,
    pub(super) target: NodeId,
    pub(super) address: String,
}

impl<T, G> Clone for Dialer<T, G> {
    fn clone(&self) -> Self {
        Dialer {
            shared: self.shared.clone(),
            target: self.target,
            address: self.address.clone(),
        }
    }
}

impl<T: Transport, G: Gate> Dialer<T, G> {
    pub(super) async fn dial(&self, lane: Lane) -> Result<Connection<T::Stream>, ConnectionError> {
        let Shared {
            transport,
            key,
            gate,
            ..
        } = &*self.shared;
        let us = gate.introduce();
        let admit = |peer: &Introduction| gate.admit(peer);
        let dialed = async {
            let stream = open(transport, &self.address).await?;
            hello::connect(stream, key, us, lane, Some(self.target), admit).await
        };
        let dialed = dialed.await;
        if let Err(error) = &dialed {
            let reason = format!("cannot connect to node {}: {error}", self.target);
            self.shared.complaints.warn(&self.address, reason);
        }
        dialed
    }

    /// Says why a connection ended, if an operator should know.
    pub(super) fn complain(&self, error: &ConnectionError) {
        if error.is_remarkable() {
            let reason = format!("connection to node {}: {error}", self.target);
            self.shared.complaints.warn(&self.address, reason);
        }
    }
}

pub(super) async fn open<T: Transport>(
    transport: &T,
    address: &str,
) -> Result<T::Stream, ConnectionError> {
    match timeout(CONNECT_TIMEOUT, transport.connect(address)).await {
        Ok(opened) => opened.map_err(ConnectionError::Io),
        Err(_) => Err(ConnectionError::Late("connection")),
    }
}
