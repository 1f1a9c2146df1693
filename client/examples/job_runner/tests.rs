use crate::support::Locks;
use crate::{Archive, JOB, Outcome, run};
use fencepost::{Client, ForceRelease};
use fencepost_resource::Stale;
use std::error::Error;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

#[tokio::test]
async fn however_many_runners_a_period_has_one_report() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let archive = Archive::new();
    for period in 0..5 {
        let mut runners = Vec::new();
        for runner in 0..5 {
            let (client, archive) = (locks.client("runner").await?, archive.clone());
            runners.push(tokio::spawn(async move {
                let work = || async move { format!("by {runner}") };
                run(&client, &archive, period, work).await.unwrap()
            }));
        }
        let mut ran = 0;
        for runner in runners {
            match runner.await? {
                Outcome::Ran(_) => ran += 1,
                other => assert_eq!(other, Outcome::DoneBefore),
            }
        }
        assert_eq!(ran, 1, "period {period}");
    }
    assert_eq!(archive.reports.lock().unwrap().len(), 5);
    Ok(())
}

/// A runner that goes on although its lock is gone, as one does that was stopped between looking at
/// the clock and writing. `run` would notice; this one is deaf.
async fn deaf_runner(
    client: Client,
    archive: Archive,
    begun: oneshot::Sender<()>,
    go_on: Arc<Notify>,
) -> Outcome {
    let guard = client.lock(JOB).acquire().await.unwrap();
    let fence = guard.fence();
    begun.send(()).unwrap();
    go_on.notified().await;
    archive.file(1, "late".to_owned(), fence).await.unwrap()
}

#[tokio::test]
async fn a_paused_runner_changes_nothing_when_it_wakes_up() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let archive = Archive::new();
    let (begun, has_begun) = oneshot::channel();
    let go_on = Arc::new(Notify::new());
    let paused = tokio::spawn(deaf_runner(
        locks.client("paused").await?,
        archive.clone(),
        begun,
        Arc::clone(&go_on),
    ));
    has_begun.await?;

    // What the end of its lease would do, without waiting for it.
    let other = locks.client("other").await?;
    let old = other.query(JOB).await?.holders[0].fence;
    assert_eq!(other.force_release(JOB, old).await?, ForceRelease::Released);
    let outcome = run(&other, &archive, 1, || async { "in time".to_owned() }).await?;
    let Outcome::Ran(new) = outcome else {
        panic!("{outcome:?}");
    };

    go_on.notify_one();
    let stale = Stale {
        seen: new,
        got: old,
        is_floor: false,
    };
    assert_eq!(paused.await?, Outcome::TooLate(stale));
    assert_eq!(archive.reports.lock().unwrap()[&1], "in time");
    Ok(())
}

/// The fence alone would let this through: the older one comes first, so nothing runs backwards.
/// That the period has its report must be noticed under the guard.
#[tokio::test]
async fn an_older_holder_that_files_first_leaves_nothing_to_do() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let archive = Archive::new();
    let client = locks.client("both").await?;
    let old = client.lock(JOB).acquire().await?.fence();
    let work = || async {
        // While the newer one works, the older one wakes up.
        archive
            .file(1, "by the older".to_owned(), old)
            .await
            .unwrap();
        "by the newer".to_owned()
    };
    assert_eq!(run(&client, &archive, 1, work).await?, Outcome::DoneBefore);
    assert_eq!(archive.reports.lock().unwrap()[&1], "by the older");
    Ok(())
}

#[tokio::test]
async fn when_a_runner_dies_the_next_one_takes_the_period() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let archive = Archive::new();
    let (begun, has_begun) = oneshot::channel();
    let dying = tokio::spawn({
        let (client, archive) = (locks.client("dying").await?, archive.clone());
        async move {
            let work = || async {
                begun.send(()).unwrap();
                std::future::pending().await
            };
            run(&client, &archive, 1, work).await.unwrap()
        }
    });
    has_begun.await?;
    dying.abort();
    let client = locks.client("next").await?;
    let outcome = run(&client, &archive, 1, || async { "done".to_owned() }).await?;
    assert!(matches!(outcome, Outcome::Ran(_)), "{outcome:?}");
    Ok(())
}
