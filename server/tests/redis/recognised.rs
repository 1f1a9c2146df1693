//! A script's text is hashed and recognised once a call, however the call comes and whatever
//! becomes of it. The server counts each time it does so.

use crate::peer::Peer;
use crate::reply::{Reply, bulk, ok, simple};
use crate::servers::Fencepost;
use fencepost::Client;

/// Compare-and-delete as no library has published it: found by its normal form, which costs more
/// than a SHA-1.
const RELEASE: &str = "if redis.call('get',KEYS[1])  ==  ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

const UNKNOWN: &str = "return redis.call('incr', KEYS[1])";

/// A server, a client of its Redis port, and the number of texts that were recognised so far.
struct Counted {
    server: Fencepost,
    peer: Peer,
    counted: u64,
}

impl Counted {
    fn start() -> Self {
        let server = Fencepost::start();
        let peer = Peer::connect(&server.address());
        Counted {
            server,
            peer,
            counted: 0,
        }
    }

    /// How many texts were recognised since the last time.
    fn count(&mut self) -> u64 {
        let address = self.server.server.local_addr().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let stats = runtime.block_on(async {
            let client = Client::connect(&address).await.expect("the server is up");
            client.stats().await.expect("it answers")
        });
        let name = "redis_script_texts_total";
        let total = stats.iter().find(|stat| stat.name == name);
        let total = total.expect("it is counted").value;
        total - std::mem::replace(&mut self.counted, total)
    }
}

#[test]
fn a_text_is_recognised_once_a_call() {
    let mut test = Counted::start();
    let calls: [&[&str]; 6] = [
        &["EVAL", RELEASE, "1", "k", "token"],
        &["EVAL_RO", RELEASE, "1", "k", "token"],
        &["EVAL", UNKNOWN, "1", "k"],
        &["SCRIPT", "LOAD", RELEASE],
        &["SCRIPT", "LOAD", UNKNOWN],
        &["EVAL", RELEASE, "1", ""],
    ];
    for call in calls {
        test.peer.call(call);
        assert_eq!(test.count(), 1, "{call:?}");
    }
}

#[test]
fn a_transaction_recognises_each_of_its_texts_once() {
    let mut test = Counted::start();
    assert_eq!(test.peer.say("SET k token NX"), ok());
    assert_eq!(test.peer.say("MULTI"), ok());
    let calls: [&[&str]; 4] = [
        &["SCRIPT", "LOAD", RELEASE],
        &["EVAL", RELEASE, "1", "k", "another"],
        &["EVAL", UNKNOWN, "1", "k"],
        &["EVAL", RELEASE, "1", "k", "token"],
    ];
    for call in calls {
        assert_eq!(test.peer.call(call), simple("QUEUED"));
    }
    assert_eq!(test.count(), 0, "what is queued is not looked at yet");
    let Reply::Array(replies) = test.peer.say("EXEC") else {
        panic!("the transaction is carried out");
    };
    assert!(matches!(replies[0], Reply::Bulk(_)));
    assert!(replies[2].is_error());
    assert_eq!(replies[1], Reply::Integer(0));
    assert_eq!(replies[3], Reply::Integer(1));
    assert_eq!(test.count(), calls.len() as u64);
}

#[test]
fn a_call_by_sha_recognises_no_text() {
    let mut test = Counted::start();
    let Reply::Bulk(sha) = test.peer.call(["SCRIPT", "LOAD", RELEASE]) else {
        panic!("the script is known");
    };
    assert_eq!(test.count(), 1);
    let call = [&b"EVALSHA"[..], &sha, b"1", b"k", b"token"];
    assert_eq!(test.peer.call(call), Reply::Integer(0));
    let exists = test.peer.call([&b"SCRIPT"[..], b"EXISTS", &sha]);
    assert_eq!(exists, Reply::Array(vec![Reply::Integer(1)]));
    assert_eq!(test.peer.say("GET k"), Reply::NullBulk);
    assert_eq!(test.peer.call(["ECHO", RELEASE]), bulk(RELEASE));
    assert_eq!(test.count(), 0);
}
