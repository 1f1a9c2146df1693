//! Fills a running peer with locks, for the experiments.

use super::fill::{self, Expiring, Times};
use super::renew;
use crate::load::generator::Generator;
use crate::load::peers::PeerName;
use crate::load::peers::fencepost::Fencepost;
use crate::load::peers::redis::Redis;
use crate::load::speaker::Speaker;
use std::net::SocketAddr;
use std::ops::Range;

/// Takes the locks `0..keys` of a running Fencepost and holds them, for an hour.
pub(crate) fn fill_fencepost(address: SocketAddr, keys: u64) -> Result<(), String> {
    connected(address, Fencepost::new, |generator, lanes| {
        fill::fill(generator, lanes, 0..keys, |_, _| renew::LEASE_MS)
    })
}

/// Takes the locks `keys` of a running peer and leaves them to run out: the first after `lead`, the
/// last after `spread` more.
pub(crate) fn fill_expiring(
    peer: PeerName,
    address: SocketAddr,
    keys: Range<u64>,
    times: Times,
) -> Result<Expiring, String> {
    match peer {
        PeerName::Fencepost => connected(address, Fencepost::new, |generator, lanes| {
            fill::fill_expiring(generator, lanes, keys, times)
        }),
        PeerName::Redis | PeerName::RedisFenced => {
            let speaker = || Redis::new(peer == PeerName::RedisFenced, false);
            connected(address, speaker, |generator, lanes| {
                fill::fill_expiring(generator, lanes, keys, times)
            })
        }
        other => Err(format!("{other} is not filled here")),
    }
}

/// Connects with many lanes, as `--renew` does, and has locks taken through them.
fn connected<S: Speaker, T>(
    address: SocketAddr,
    speaker: impl FnMut() -> S,
    take: impl FnOnce(&mut Generator<S>, &[u32]) -> Result<T, String>,
) -> Result<T, String> {
    let lanes = renew::SESSIONS * renew::PIPELINE;
    let links = renew::SESSIONS as usize;
    let mut generator = Generator::connect(&[address], links, lanes, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let all: Vec<u32> = (0..lanes).collect();
    take(&mut generator, &all)
}
