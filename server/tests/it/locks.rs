//! Locks over the wire.

use crate::common::{Peer, acquire, granted, start};
use protocol::Reply;

#[test]
fn a_lock_is_taken_refused_released_and_taken_again() {
    let server = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let first = a.acquire("orders/42", 10_000);
    b.ask(&acquire("orders/42", 10_000, 0), |reply| match reply {
        Reply::Refused(contention) => {
            let holder = contention.holder.expect("a holder that is long settled");
            assert_eq!(holder.client_name.as_str(), "a");
            assert_eq!(holder.fence.get(), first);
        }
        other => panic!("not refused but {other:?}"),
    });
    assert!(a.release("orders/42", first));
    let second = b.acquire("orders/42", 10_000);
    assert!(second > first);
    assert!(
        !a.release("orders/42", first),
        "a stale release changes nothing"
    );
    assert!(b.release("orders/42", second));
}

#[test]
fn a_waiter_is_granted_when_the_holder_releases() {
    let server = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let first = a.acquire("k", 10_000);
    let waiting = b.send(&acquire("k", 10_000, 10_000));
    assert!(a.release("k", first));
    let second = b.reply(waiting, granted);
    assert!(second > first);
}
