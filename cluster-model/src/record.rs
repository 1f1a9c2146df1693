//! What the leader writes down of its decisions.

use crate::{Fence, RequestId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record {
    Ceiling(Fence),
    /// `GrantedOn`: with the id of the request that it answers.
    Granted(usize, Lease),
    Renewed(usize, Lease),
    Released(usize, Fence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    pub request: RequestId,
    pub fence: Fence,
    /// By the cluster's clock.
    pub until: Time,
    /// The real time of the decision. Only properties look at it.
    pub promised: Time,
}
