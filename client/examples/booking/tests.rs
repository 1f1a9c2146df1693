use crate::support::Locks;
use crate::{Book, Reply, book};
use std::error::Error;
use std::sync::Arc;
use tokio::sync::{Barrier, Notify};

async fn nothing() {}

fn taken(by: &str) -> Reply {
    Reply::Taken { by: by.to_owned() }
}

#[tokio::test]
async fn one_after_the_other_the_second_finds_the_table_taken() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let (client, the_book) = (locks.client("machine").await?, Book::new());
    assert_eq!(
        book(&client, &the_book, "T1", "Ann", nothing).await?,
        Reply::Booked
    );
    assert_eq!(
        book(&client, &the_book, "T1", "Bob", nothing).await?,
        taken("Ann")
    );
    assert_eq!(
        book(&client, &the_book, "T2", "Bob", nothing).await?,
        Reply::Booked
    );
    Ok(())
}

#[tokio::test]
async fn at_the_same_time_one_is_told_at_once_that_another_is_at_it() -> Result<(), Box<dyn Error>>
{
    let locks = Locks::embedded()?;
    let (one, other) = (locks.client("one").await?, locks.client("other").await?);
    let the_book = Book::new();
    let (has_begun, go_on) = (Notify::new(), Notify::new());
    let check = async || {
        has_begun.notify_one();
        go_on.notified().await;
    };
    let second = async {
        has_begun.notified().await;
        let reply = book(&other, &the_book, "T1", "Bob", nothing).await;
        go_on.notify_one();
        reply
    };
    let (first, second) = tokio::join!(book(&one, &the_book, "T1", "Ann", check), second);
    assert_eq!((first?, second?), (Reply::Booked, Reply::Busy));
    Ok(())
}

#[tokio::test]
async fn a_machine_that_stood_still_books_nothing() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let (one, other) = (locks.client("one").await?, locks.client("other").await?);
    let the_book = Book::new();
    // While the first one stands still, its lock ends; here by force, which needs no waiting.
    let stands_still = async || {
        let fence = other.query("tables/T1").await.unwrap().holders[0].fence;
        other.force_release("tables/T1", fence).await.unwrap();
        let meanwhile = book(&other, &the_book, "T1", "Bob", nothing).await;
        assert_eq!(meanwhile.unwrap(), Reply::Booked);
    };
    assert_eq!(
        book(&one, &the_book, "T1", "Ann", stands_still).await?,
        Reply::TryAgain
    );
    assert_eq!(the_book.guests.lock().unwrap()["T1"], "Bob");
    Ok(())
}

#[tokio::test]
async fn of_many_guests_one_gets_the_table() -> Result<(), Box<dyn Error>> {
    let locks = Locks::embedded()?;
    let the_book = Book::new();
    let start = Arc::new(Barrier::new(8));
    let mut requests = Vec::new();
    for guest in 0..8 {
        let (client, the_book) = (locks.client("machine").await?, the_book.clone());
        let start = Arc::clone(&start);
        requests.push(tokio::spawn(async move {
            start.wait().await;
            book(&client, &the_book, "T1", &guest.to_string(), nothing)
                .await
                .unwrap()
        }));
    }
    let mut booked = 0;
    for request in requests {
        match request.await? {
            Reply::Booked => booked += 1,
            reply => assert!(
                matches!(reply, Reply::Busy | Reply::Taken { .. }),
                "{reply:?}"
            ),
        }
    }
    assert_eq!(booked, 1);
    Ok(())
}
