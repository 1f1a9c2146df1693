//! The guard for rows of PostgreSQL: the comparison is a statement in the transaction that writes.
//!
//! A database has all that a guard needs: it locks the row of a key until the transaction ends, it
//! keeps fences as long as it keeps what was written under them, and it takes both back together.
//! So nothing of this crate's own memory is involved; any number of processes may write.
//!
//! ```sql
//! INSERT INTO fences AS known (key, fence) VALUES ($1, $2)
//! ON CONFLICT (key) DO UPDATE SET fence = excluded.fence WHERE known.fence < excluded.fence
//! ```
//!
//! It changes one row or none; none means that the fence ran backwards. The second transaction
//! waits at the row until the first has ended, and then compares with what that one left. (So it is
//! under `READ COMMITTED`, the default. Under the stricter levels the second fails with a
//! serialisation error instead, and is to be repeated.)
//!
//! Where a table has room for a column of its own, no second table is needed: `UPDATE orders SET
//! state = $1, fence = $2 WHERE id = $3 AND fence < $2`, and no row changed means the same. That
//! needs no help from here.
//!
//! Rows of `fences` are small and are never deleted here. Delete one only when no client can still
//! hold an older fence of its key.

use crate::refusal::{Policy, Stale};
use protocol::Fence;
use std::error::Error;
use std::fmt;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

/// Compares fences inside transactions.
///
/// ```no_run
/// use fencepost_resource::{Fence, postgres::{PgError, PgGuard}};
///
/// # async fn example(mut client: tokio_postgres::Client, fence: Fence) -> Result<(), PgError> {
/// let guard = PgGuard::new("fences");
/// guard.create_table(&client).await?;
///
/// guard.write(&mut client, "orders/42", fence, async |transaction| {
///     transaction.execute("UPDATE orders SET state = 'paid' WHERE id = 42", &[]).await?;
///     Ok::<(), PgError>(())
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PgGuard {
    table: String,
    policy: Policy,
}

impl PgGuard {
    /// A guard that keeps its fences in `table`, or in `schema.table`, and refuses by
    /// [`Policy::FirstUse`].
    pub fn new(table: &str) -> Self {
        let quoted = table
            .split('.')
            .map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
        PgGuard {
            table: quoted.collect::<Vec<_>>().join("."),
            policy: Policy::default(),
        }
    }

    /// Which fences to refuse.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes the table unless it exists. Programs that may not do that find the statement in the
    /// source.
    ///
    /// # Errors
    /// The database refused.
    pub async fn create_table(&self, client: &Client) -> Result<(), PgError> {
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {} (key bytea PRIMARY KEY, fence bigint NOT NULL)",
            self.table
        );
        Ok(client.batch_execute(&statement).await?)
    }

    /// Runs `write` in a transaction that has claimed `key` for `fence`, and commits it. No other
    /// transaction that claims the key gets further until then. If the write fails, the transaction
    /// is rolled back, its claim with it: the fence can be used again.
    ///
    /// Cancel safe: if dropped before the commit was sent, all is rolled back; afterwards it is as
    /// if the answer got lost.
    ///
    /// # Errors
    /// [`PgError::Stale`] is the one to expect; whatever the write returns is passed on. Only after
    /// a failed commit it is not known whether anything was written.
    pub async fn write<T, E: From<PgError>>(
        &self,
        client: &mut Client,
        key: impl AsRef<[u8]>,
        fence: Fence,
        write: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction = client.transaction().await.map_err(PgError::Database)?;
        self.claim(&transaction, key, fence).await?;
        let value = write(&transaction).await?;
        transaction.commit().await.map_err(PgError::Database)?;
        Ok(value)
    }

    /// Claims `key` for `fence`, until `transaction` ends: the half of [`write`](Self::write) for
    /// transactions that are begun and ended elsewhere. Claim before reading what the write depends
    /// on. Roll back if this is refused.
    ///
    /// # Errors
    /// [`PgError::Stale`] is the one to expect.
    pub async fn claim(
        &self,
        transaction: &Transaction<'_>,
        key: impl AsRef<[u8]>,
        fence: Fence,
    ) -> Result<(), PgError> {
        let (key, table) = (key.as_ref(), &self.table);
        let number = i64::try_from(fence.get()).map_err(|_| PgError::TooLarge { fence })?;
        let below = match self.policy {
            Policy::FirstUse => "<",
            Policy::AtLeast => "<=",
        };
        let claim = format!(
            "INSERT INTO {table} AS known (key, fence) VALUES ($1, $2) \
             ON CONFLICT (key) DO UPDATE SET fence = excluded.fence WHERE known.fence {below} excluded.fence"
        );
        let parameters = [(&key as _, Type::BYTEA), (&number as _, Type::INT8)];
        if transaction.execute_typed(&claim, &parameters).await? == 1 {
            return Ok(());
        }
        let look = format!("SELECT fence FROM {table} WHERE key = $1");
        let row = transaction
            .query_typed_opt(&look, &[(&key as _, Type::BYTEA)])
            .await?;
        let seen = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
        let seen = seen.and_then(|seen| Fence::new(u64::try_from(seen).ok()?));
        Err(PgError::Stale(Stale {
            // Only if the row was deleted since.
            seen: seen.unwrap_or(fence),
            got: fence,
            is_floor: false,
        }))
    }
}

/// Why a transaction did not go through.
#[derive(Debug)]
#[non_exhaustive]
pub enum PgError {
    /// The fence ran backwards. Nothing was written.
    Stale(Stale),
    /// The database counts to 2^63 - 1 only. No lock server gets there by counting.
    TooLarge {
        /// The fence.
        fence: Fence,
    },
    /// The database refused, or is out of reach.
    Database(tokio_postgres::Error),
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::TooLarge { fence } => write!(f, "fence {fence} is more than a bigint can hold"),
            Self::Database(error) => match error.as_db_error() {
                // The error's own text says no more than "db error".
                Some(error) => write!(f, "the database refused: {error}"),
                None => write!(f, "the database cannot be reached: {error}"),
            },
        }
    }
}

impl Error for PgError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::TooLarge { .. } => None,
            Self::Database(error) => Some(error),
        }
    }
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}
