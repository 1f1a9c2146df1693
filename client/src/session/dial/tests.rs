use super::*;
use tokio::net::TcpListener;

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn dialer_of<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Dialer {
    let addresses = addresses.into_iter().map(Arc::from).collect();
    Dialer::new(addresses, Duration::from_secs(30), None)
}

async fn next_address(dialer: &mut Dialer) -> Option<String> {
    let dialled = dialer.next().await?;
    Some(dialled.address.to_string())
}

/// A listener that has as many connections waiting as it allows: the system drops the first packet
/// of any other, as a host that is down would.
async fn full_listener() -> (tokio::net::TcpListener, Vec<TcpStream>, String) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(100);
    while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(&address)).await {
        waiting.push(stream.unwrap());
    }
    (listener, waiting, address)
}

#[tokio::test]
async fn addresses_come_in_order_and_what_is_not_there_is_passed_over() {
    let (_first, first) = listener().await;
    let (_second, second) = listener().await;
    let nowhere = listener().await.1;
    let mut dialer = dialer_of([nowhere.as_str(), &first, &second]);
    assert_eq!(next_address(&mut dialer).await, Some(first));
    assert_eq!(next_address(&mut dialer).await, Some(second));
    assert_eq!(next_address(&mut dialer).await, None);
    let error = dialer.into_error();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_host_that_says_nothing_is_not_waited_for() {
    let (_silent, _waiting, silent) = full_listener().await;
    let (_there, there) = listener().await;
    let mut dialer = dialer_of([silent.as_str(), &there]);
    assert_eq!(next_address(&mut dialer).await, Some(there));
    // Its own time has not passed, or it would be among the failures.
    assert!(dialer.failures.is_empty());
    assert_eq!(dialer.dialling.len(), 1);
}

#[tokio::test]
async fn a_leader_that_is_named_is_next_and_comes_once() {
    let (_first, first) = listener().await;
    let (_second, second) = listener().await;
    let (_third, third) = listener().await;
    let (_new, new) = listener().await;
    let mut dialer = dialer_of([first.as_str(), &second, &third]);
    assert_eq!(next_address(&mut dialer).await, Some(first.clone()));
    dialer.follow(&third);
    assert_eq!(next_address(&mut dialer).await, Some(third.clone()));
    dialer.follow(&first);
    dialer.follow(&third);
    dialer.follow(&new);
    assert_eq!(next_address(&mut dialer).await, Some(new));
    assert_eq!(next_address(&mut dialer).await, Some(second));
    assert_eq!(next_address(&mut dialer).await, None);
}

#[test]
fn names_of_leaders_without_end_are_not_followed_without_end() {
    let mut dialer = dialer_of(["a:1"]);
    for port in 1..1_000 {
        dialer.follow(&format!("b:{port}"));
    }
    assert_eq!(dialer.queue.len(), NODES_MAX);
}

#[test]
fn what_will_not_go_away_by_itself_is_told_before_the_rest() {
    let refused = |code| ConnectError::Refused {
        address: "b:1".to_owned(),
        code,
        message: "no".to_owned(),
    };
    let not_leader = ConnectError::NotLeader {
        address: "a:1".to_owned(),
        leader: None,
    };
    let mut dialer = dialer_of(["a:1", "b:1"]);
    dialer.note_failure(not_leader.clone());
    dialer.note_failure(refused(protocol::ErrorCode::UNAUTHENTICATED));
    let permanent = refused(protocol::ErrorCode::UNAUTHENTICATED);
    assert_eq!(dialer.into_error(), permanent);

    let mut several = dialer_of(["a:1", "b:1"]);
    let failures = vec![not_leader, refused(protocol::ErrorCode::AT_CAPACITY)];
    failures
        .iter()
        .cloned()
        .for_each(|failure| several.note_failure(failure));
    assert_eq!(several.into_error(), ConnectError::NoneOf { failures });
}
