//! The client against a server that follows a script: for what a healthy server does not do on
//! command.

use crate::support::*;
use bytes::{Buf, BytesMut};
use fencepost::{Client, Error, Fence, Loss, Mode, UnavailableReason};
use protocol::{
    Contention, ErrorCode, Frame, Message, NodeAddress, NodeAddresses, Opening, Reply, Request,
    RequestId, ServerName, SessionId, SessionKey, SessionSecret, Welcome, limits,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// One request, as the script sees it.
struct Heard<'a> {
    connection: usize,
    id: RequestId,
    is_repeated: bool,
    request: Request<'a>,
}

/// Answers each request as `script` says; `None` hangs up. One connection at a time.
async fn serve(
    mut script: impl FnMut(&Heard<'_>) -> Option<Vec<Reply<'static>>> + Send + 'static,
) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            converse(stream, connection, &mut script).await;
        }
    });
    builder(address).connections(1).connect().await.unwrap()
}

async fn converse(
    mut stream: TcpStream,
    connection: usize,
    script: &mut impl FnMut(&Heard<'_>) -> Option<Vec<Reply<'static>>>,
) {
    let mut input = BytesMut::new();
    loop {
        let mut out = BytesMut::new();
        let mut unread = &input[..];
        while let Some(frame) = Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX).unwrap()
        {
            let heard = Heard {
                connection,
                id: frame.request_id,
                is_repeated: frame.is_repeated(),
                request: Request::decode(&frame).unwrap(),
            };
            let Some(replies) = script(&heard) else {
                return;
            };
            for reply in replies {
                reply.append(frame.request_id, &mut out);
            }
        }
        let read_bytes = input.len() - unread.len();
        input.advance(read_bytes);
        stream.write_all(&out).await.unwrap();
        if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

fn welcome(session: u64, is_resumed: bool, grace_ms: Option<u32>) -> Reply<'static> {
    Reply::Welcome(Welcome {
        version: 1,
        is_resumed,
        session: SessionKey {
            session_id: SessionId::new(session),
            secret: SessionSecret::new([7; 16]),
        },
        session_ttl_ms: LONG.as_millis() as u32,
        frame_bytes_max: 4096,
        in_flight_max: 64,
        remembered_max: 64,
        server_name: ServerName::clipped("a script"),
        grace_ms,
        addresses: NodeAddresses::default(),
    })
}

fn granted(number: u64) -> Reply<'static> {
    Reply::Granted {
        fence: Fence::new(number).unwrap(),
        ttl_ms: LONG.as_millis() as u32,
        hold_count: 1,
    }
}

fn renewed() -> Reply<'static> {
    Reply::Renewed {
        ttl_ms: LONG.as_millis() as u32,
    }
}

#[tokio::test]
async fn a_server_that_recovers_is_asked_again_within_the_wait() {
    let mut acquire_count = 0;
    let client = serve(move |heard| {
        Some(vec![match heard.request {
            Request::Hello(_) => welcome(1, false, None),
            Request::Acquire(_) => {
                acquire_count += 1;
                match acquire_count {
                    4.. => granted(9),
                    _ => Reply::Unavailable {
                        reason: UnavailableReason::RECOVERING,
                        retry_after_ms: 1,
                    },
                }
            }
            Request::Release { .. } => Reply::Released { remaining_count: 0 },
            _ => Reply::Bye,
        }])
    })
    .await;
    let answer = client.lock("k").try_acquire().await;
    assert!(
        matches!(
            answer,
            Err(Error::Unavailable {
                reason: UnavailableReason::RECOVERING,
                retry_after: Some(_)
            })
        ),
        "{answer:?}"
    );
    let guard = client.lock("k").acquire().await.unwrap();
    assert_eq!(guard.fence().get(), 9);
}

#[tokio::test]
async fn a_wait_that_a_stopping_server_ended_goes_on_at_its_successor() {
    let mut acquire_count = 0;
    let client = serve(move |heard| {
        Some(vec![match (heard.connection, heard.request) {
            (0, Request::Hello(_)) => welcome(1, false, None),
            (0, Request::Acquire(_)) => {
                acquire_count += 1;
                match acquire_count {
                    1 => Reply::Unavailable {
                        reason: UnavailableReason::SHUTTING_DOWN,
                        retry_after_ms: 0,
                    },
                    // Its time is up, and it closes its connections.
                    _ => return None,
                }
            }
            // It is gone for a while: every connection is hung up on.
            (..=4, _) => return None,
            (_, Request::Hello(_)) => welcome(1, true, None),
            (_, Request::Acquire(acquire)) => {
                assert!(acquire.wait_ms > 0, "it stands in line again");
                granted(9)
            }
            (_, Request::Renew { .. }) => renewed(),
            (_, Request::Release { .. }) => Reply::Released { remaining_count: 0 },
            _ => Reply::Bye,
        }])
    })
    .await;
    let guard = in_time(client.lock("k").acquire()).await.unwrap();
    assert_eq!(guard.fence().get(), 9);
}

#[tokio::test]
async fn after_a_restart_with_a_grace_period_locks_are_claimed_before_anything_else() {
    let (report, mut reported) = mpsc::unbounded_channel();
    let client = serve(move |heard| {
        if heard.connection == 1 {
            report
                .send(format!("{:?}", heard.request))
                .expect("the test listens");
        }
        Some(vec![match (heard.connection, heard.request) {
            (0, Request::Hello(_)) => welcome(1, false, None),
            (0, Request::Acquire(_)) => granted(9),
            (0, Request::Ping) => return None,
            (1, Request::Hello(hello)) => {
                assert!(matches!(hello.opening, Opening::Resume(_)));
                welcome(1, true, Some(30_000))
            }
            (1, Request::Claim(claim)) => {
                assert_eq!(claim.key.as_bytes(), b"k");
                assert_eq!(claim.metadata.as_bytes(), b"note");
                granted(claim.fence.get())
            }
            (1, Request::Ping) => {
                assert!(heard.is_repeated, "it was sent before");
                Reply::Pong
            }
            (1, Request::Renew { .. }) => renewed(),
            (_, Request::Release { .. }) => Reply::Released { remaining_count: 0 },
            _ => Reply::Bye,
        }])
    })
    .await;
    let guard = client.lock("k").metadata(b"note").acquire().await.unwrap();
    let before = guard.valid_until();
    client.ping().await.unwrap();
    assert!(guard.is_valid());
    assert!(guard.valid_until() > before, "the claim is a new lease");
    assert_eq!(guard.mode(), Mode::Exclusive, "the same as before");
    assert!(reported.recv().await.unwrap().starts_with("Hello"));
    assert!(reported.recv().await.unwrap().starts_with("Claim"));
}

/// A kill breaks both connections, but the task of the second has not noticed. The first to come
/// back joined the session, the second later too, and neither claimed: the lock was lost when the
/// grace period ended.
#[tokio::test]
async fn locks_are_claimed_although_one_connection_seems_to_have_survived_the_restart() {
    let (report, mut reported) = mpsc::unbounded_channel();
    let script = move |heard: &Heard<'_>| {
        let (connection, request) = (heard.connection, heard.request);
        if connection >= 2 {
            report.send((connection, format!("{request:?}"))).ok();
        }
        Some(vec![match (connection, request) {
            (0, Request::Hello(_)) => welcome(1, false, None),
            (1, Request::Hello(_)) => welcome(1, true, None),
            (..=1, Request::Acquire(_)) => granted(9),
            (2, Request::Hello(hello)) => {
                assert!(matches!(hello.opening, Opening::Join(_)), "{hello:?}");
                welcome(1, true, Some(30_000))
            }
            (_, Request::Hello(_)) => welcome(1, true, Some(30_000)),
            (_, Request::Claim(claim)) => granted(claim.fence.get()),
            (_, Request::Renew { .. }) => renewed(),
            (_, Request::Release { .. }) => Reply::Released { remaining_count: 0 },
            (_, Request::Ping) => Reply::Pong,
            _ => Reply::Bye,
        }])
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(Mutex::new(script));
    let (hang_up, hung_up) = watch::channel(false);
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let script = Arc::clone(&script);
            let mut hung_up = hung_up.clone();
            tokio::spawn(async move {
                let mut script = |heard: &Heard<'_>| (script.lock().unwrap())(heard);
                tokio::select! {
                    () = converse(stream, connection, &mut script) => {}
                    _ = hung_up.wait_for(|is_over| *is_over), if connection == 0 => {}
                }
            });
        }
    });
    let client = builder(address).connections(2).connect().await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    hang_up.send_replace(true);
    let mut next = async || in_time(reported.recv()).await.unwrap();
    let (connection, hello) = next().await;
    assert!(connection == 2 && hello.starts_with("Hello"), "{hello}");
    let (connection, hello) = next().await;
    assert!(connection == 3 && hello.contains("Resume"), "{hello}");
    let (connection, claim) = next().await;
    assert!(connection == 3 && claim.starts_with("Claim"), "{claim}");
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_session_that_ends_under_an_open_connection_costs_all_locks_and_is_replaced() {
    let client = serve(move |heard| {
        Some(vec![match (heard.connection, heard.request) {
            (0, Request::Hello(_)) => welcome(1, false, None),
            (0, Request::Acquire(_)) => granted(9),
            (0, _) => Reply::Error {
                code: ErrorCode::SESSION_ENDED,
                message: Message::clipped("over"),
                leader: NodeAddress::default(),
            },
            (_, Request::Hello(hello)) => {
                assert_eq!(hello.opening, Opening::New);
                welcome(2, false, None)
            }
            (_, Request::Ping) => {
                assert!(!heard.is_repeated, "it is new to the new session");
                Reply::Pong
            }
            _ => Reply::Bye,
        }])
    })
    .await;
    let guard = client.lock("k").acquire().await.unwrap();
    client.ping().await.unwrap();
    assert_eq!(in_time(guard.lost()).await, Loss::SessionEnded);
    assert_eq!(client.session_id(), Some(2));
}

#[tokio::test]
async fn a_repeated_request_has_its_id_and_its_mark() {
    let (report, mut reported) = mpsc::unbounded_channel();
    let client = serve(move |heard| {
        Some(vec![match (heard.connection, heard.request) {
            (_, Request::Hello(_)) => welcome(1, heard.connection > 0, None),
            (_, Request::Acquire(_)) => granted(9),
            (connection, Request::Release { .. }) => {
                report.send((heard.id, heard.is_repeated)).unwrap();
                match connection {
                    0 => return None,
                    _ => Reply::Released { remaining_count: 0 },
                }
            }
            _ => Reply::Bye,
        }])
    })
    .await;
    let guard = client.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    let (first_id, is_first_repeated) = reported.recv().await.unwrap();
    let (second_id, is_second_repeated) = reported.recv().await.unwrap();
    assert_eq!(first_id, second_id);
    assert!(!is_first_repeated && is_second_repeated);
}

#[tokio::test]
async fn a_release_that_the_server_forgot_is_made_anew() {
    let client = serve(move |heard| {
        Some(vec![match (heard.connection, heard.request) {
            (_, Request::Hello(_)) => welcome(1, heard.connection > 0, None),
            (_, Request::Acquire(_)) => granted(9),
            (0, Request::Release { .. }) => return None,
            (_, Request::Release { .. }) if heard.is_repeated => Reply::Error {
                code: ErrorCode::FORGOTTEN,
                message: Message::clipped("long ago"),
                leader: NodeAddress::default(),
            },
            (_, Request::Release { .. }) => Reply::Released { remaining_count: 0 },
            _ => Reply::Bye,
        }])
    })
    .await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert_eq!(guard.release().await, Ok(fencepost::Release::Released));
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_told_apart_from_one_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut session = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            session += 1;
            tokio::spawn(async move {
                // Long enough for the hello, which is all that is answered.
                let mut hello = BytesMut::new();
                stream.read_buf(&mut hello).await.unwrap();
                let mut out = BytesMut::new();
                welcome(session, false, None).append(RequestId::new(1), &mut out);
                stream.write_all(&out).await.unwrap();
                while stream.read_buf(&mut hello).await.unwrap_or(0) > 0 {}
            });
        }
    });
    let client = builder(address)
        .connections(1)
        .request_timeout(Duration::from_millis(100))
        .connect()
        .await
        .unwrap();
    let answer = client.ping().await;
    assert!(
        matches!(
            answer,
            Err(Error::NoAnswer { .. } | Error::Disconnected { .. })
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_acquire_that_is_refused_while_waiting_is_contention() {
    let client = serve(move |heard| {
        Some(vec![match heard.request {
            Request::Hello(_) => welcome(1, false, None),
            Request::Acquire(acquire) => {
                assert!(acquire.wait_ms > 0);
                Reply::TimedOut(Contention {
                    holder_count: 0,
                    queue_length: 3,
                    holder: None,
                    recovering_ms: None,
                })
            }
            _ => Reply::Bye,
        }])
    })
    .await;
    let error = client.lock("k").acquire().await.unwrap_err();
    assert_eq!(error.contention().unwrap().queue_length, 3);
    assert_eq!(
        error.to_string(),
        "not acquired in time: it changed hands just now, 3 waiting. Wait longer, or come back later"
    );
}

/// A key that no holder has claimed yet may be held: "it changed hands" would be a guess.
#[tokio::test]
async fn an_acquire_that_times_out_while_the_server_recovers_says_so() {
    let client = serve(move |heard| {
        Some(vec![match heard.request {
            Request::Hello(_) => welcome(1, false, None),
            Request::Acquire(_) => Reply::TimedOut(Contention {
                holder_count: 0,
                queue_length: 0,
                holder: None,
                recovering_ms: Some(2_500),
            }),
            _ => Reply::Bye,
        }])
    })
    .await;
    let error = client.lock("k").acquire().await.unwrap_err();
    let left = error.contention().unwrap().recovering();
    assert_eq!(left, Some(Duration::from_millis(2_500)));
    assert_eq!(
        error.to_string(),
        "not acquired in time: the server is recovering from a restart for 2.5s more and does not know all holders: it may be \
         held. Wait longer, or come back later"
    );
}
