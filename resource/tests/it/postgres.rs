//! The guard for transactions, against a real PostgreSQL.

use crate::database::Database;
use crate::guard::fence;
use resource::postgres::{PgError, PgGuard};
use resource::{Policy, Stale};
use tokio_postgres::Client;

/// What is guarded: a value, and a list of its writes in the order in which they took effect.
const TABLES: &str = "CREATE TABLE seats (id int PRIMARY KEY, guest text);
    CREATE TABLE writes (position bigserial, fence bigint);
    INSERT INTO seats VALUES (1, NULL)";

async fn write(
    guard: &PgGuard,
    client: &mut Client,
    number: u64,
    guest: &str,
) -> Result<(), PgError> {
    guard
        .write(client, "seats/1", fence(number), async |transaction| {
            transaction
                .execute("UPDATE seats SET guest = $1 WHERE id = 1", &[&guest])
                .await?;
            transaction
                .execute(
                    "INSERT INTO writes (fence) VALUES ($1)",
                    &[&(number as i64)],
                )
                .await?;
            Ok(())
        })
        .await
}

async fn guest(client: &Client) -> Option<String> {
    client
        .query_one("SELECT guest FROM seats", &[])
        .await
        .unwrap()
        .get(0)
}

fn stale(result: Result<(), PgError>) -> Stale {
    match result {
        Err(PgError::Stale(stale)) => stale,
        other => panic!("{other:?}"),
    }
}

/// One database for all: starting it takes most of the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_never_run_backwards_in_a_database() {
    let Some(database) = Database::start().await else {
        return;
    };
    let client = database.connect().await;
    client.batch_execute(TABLES).await.unwrap();

    a_stale_write_changes_nothing(&database).await;
    at_least_lets_one_grant_write_often(&database).await;
    a_write_that_fails_has_not_used_its_fence(&database).await;
    the_second_waits_for_the_first(&database, true).await;
    the_second_waits_for_the_first(&database, false).await;
    a_fence_beyond_the_column_is_refused(&database).await;
    many_writers_leave_rising_fences(&database).await;
}

async fn guard_over(database: &Database, table: &str) -> (PgGuard, Client) {
    let guard = PgGuard::new(table);
    let client = database.connect().await;
    guard.create_table(&client).await.unwrap();
    guard.create_table(&client).await.unwrap();
    (guard, client)
}

async fn a_stale_write_changes_nothing(database: &Database) {
    let (guard, mut client) = guard_over(database, "public.needs \"quotes\"").await;
    write(&guard, &mut client, 33, "Ann").await.unwrap();
    write(&guard, &mut client, 34, "Bob").await.unwrap();
    let refused = stale(write(&guard, &mut client, 33, "Ann, late").await);
    assert_eq!((refused.seen, refused.got), (fence(34), fence(33)));
    let refused = stale(write(&guard, &mut client, 34, "Bob again").await);
    assert_eq!((refused.seen, refused.got), (fence(34), fence(34)));
    assert_eq!(guest(&client).await.as_deref(), Some("Bob"));
}

async fn at_least_lets_one_grant_write_often(database: &Database) {
    let (guard, mut client) = guard_over(database, "often").await;
    let guard = guard.policy(Policy::AtLeast);
    for guest in ["Ann", "Bob"] {
        write(&guard, &mut client, 7, guest).await.unwrap();
    }
    assert_eq!(
        stale(write(&guard, &mut client, 6, "late").await).seen,
        fence(7)
    );
}

async fn a_write_that_fails_has_not_used_its_fence(database: &Database) {
    let (guard, mut client) = guard_over(database, "fails").await;
    let failed = guard.write(&mut client, "seats/1", fence(5), async |transaction| {
        transaction
            .execute("UPDATE seats SET guest = 'half-way'", &[])
            .await?;
        transaction
            .execute("SELECT no_such_column FROM seats", &[])
            .await?;
        Ok::<(), PgError>(())
    });
    let error = failed.await.unwrap_err();
    assert!(
        matches!(error, PgError::Database(_)) && error.to_string().contains("no_such_column"),
        "{error}"
    );
    assert_ne!(guest(&client).await.as_deref(), Some("half-way"));
    write(&guard, &mut client, 5, "Ann").await.unwrap();
}

/// What the second is told depends on how the first ends, so it has to wait for that.
async fn the_second_waits_for_the_first(database: &Database, commits: bool) {
    let (guard, mut first) =
        guard_over(database, if commits { "commits" } else { "rolls_back" }).await;
    let transaction = first.transaction().await.unwrap();
    guard
        .claim(&transaction, "seats/1", fence(9))
        .await
        .unwrap();
    let second = tokio::spawn({
        let (guard, mut client) = (guard.clone(), database.connect().await);
        async move { write(&guard, &mut client, 8, "Bob").await }
    });
    let watcher = database.connect().await;
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while watcher.query(waiting, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it should wait");
    }
    if commits {
        transaction.commit().await.unwrap();
        assert_eq!(stale(second.await.unwrap()).seen, fence(9));
    } else {
        transaction.rollback().await.unwrap();
        second.await.unwrap().unwrap();
    }
}

async fn a_fence_beyond_the_column_is_refused(database: &Database) {
    let (guard, mut client) = guard_over(database, "large").await;
    let refused = write(&guard, &mut client, u64::MAX, "Ann").await;
    assert!(
        matches!(refused, Err(PgError::TooLarge { .. })),
        "{refused:?}"
    );
    write(&guard, &mut client, i64::MAX as u64, "Ann")
        .await
        .unwrap();
}

async fn many_writers_leave_rising_fences(database: &Database) {
    let (guard, client) = guard_over(database, "many").await;
    client.execute("DELETE FROM writes", &[]).await.unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut writers = Vec::new();
    for writer in 0..6 {
        let (guard, mut client) = (guard.clone(), database.connect().await);
        let mut random = fastrand::Rng::with_seed(seed + writer);
        writers.push(tokio::spawn(async move {
            let mut accepted = 0;
            for step in 0..60 {
                match write(&guard, &mut client, 1 + step + random.u64(..10), "somebody").await {
                    Ok(()) => accepted += 1,
                    Err(PgError::Stale(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            accepted
        }));
    }
    let mut accepted = 0;
    for writer in writers {
        accepted += writer.await.unwrap();
    }
    let rows = client
        .query("SELECT fence FROM writes ORDER BY position", &[])
        .await
        .unwrap();
    let fences: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert!(
        fences.is_sorted_by(|earlier, later| earlier < later),
        "{fences:?}"
    );
    assert_eq!(fences.len(), accepted);
    assert!(accepted > 0);
}
