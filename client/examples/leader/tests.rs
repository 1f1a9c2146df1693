use crate::support::Locks;
use crate::{Cluster, LEADERSHIP, lead_once};
use fencepost::{ForceRelease, Loss};
use fencepost_resource::Refusal;
use std::error::Error;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_leader_that_loses_its_lock_stops_where_it_stands() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let cluster = Cluster::new();
    let (elected, is_elected) = oneshot::channel();
    let first = tokio::spawn({
        let (client, cluster) = (locks.client("first").await?, cluster.clone());
        async move {
            let term = |fence| async move {
                cluster.obey(fence, "forward".to_owned()).await.unwrap();
                elected.send(fence).unwrap();
                // It would lead for ever.
                std::future::pending().await
            };
            lead_once(&client, term).await.unwrap()
        }
    });
    let old = is_elected.await?;
    let second = tokio::spawn({
        let (client, cluster) = (locks.client("second").await?, cluster.clone());
        async move {
            let term = |fence| async move { cluster.obey(fence, "back".to_owned()).await.unwrap() };
            lead_once(&client, term).await.unwrap()
        }
    });
    let operator = locks.client("operator").await?;
    assert_eq!(
        operator.force_release(LEADERSHIP, old).await?,
        ForceRelease::Released
    );
    assert_eq!(first.await?, (old, Loss::Forced), "it steps down");
    let (new, loss) = second.await?;
    assert!(new > old && loss == Loss::Released, "{new} {loss}");

    // An order of the first that was on its way all the while.
    match cluster.obey(old, "left".to_owned()).await {
        Err(Refusal::Stale(stale)) => assert_eq!((stale.seen, stale.got), (new, old)),
        other => panic!("{other:?}"),
    }
    let orders = cluster.orders.lock().unwrap();
    assert_eq!(
        *orders,
        [(old, "forward".to_owned()), (new, "back".to_owned())]
    );
    Ok(())
}

#[tokio::test]
async fn there_is_one_leader_at_a_time() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let cluster = Cluster::new();
    let mut candidates = Vec::new();
    for candidate in 0..6 {
        let (client, cluster) = (locks.client("candidate").await?, cluster.clone());
        candidates.push(tokio::spawn(async move {
            let term = |fence| async move {
                for _ in 0..5 {
                    cluster.obey(fence, candidate.to_string()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            lead_once(&client, term).await.unwrap()
        }));
    }
    for candidate in candidates {
        candidate.await?;
    }
    let orders = cluster.orders.lock().unwrap();
    assert!(orders.is_sorted_by_key(|order| order.0), "{orders:?}");
    for term in orders.chunk_by(|one, next| one.0 == next.0) {
        assert_eq!(term.len(), 5, "no leader is interrupted: {orders:?}");
    }
    assert_eq!(orders.len(), 30);
    Ok(())
}
