//! Answers of drives, as one type: what makes them is then compiled here. The code of an `async fn` is
//! compiled where it is awaited, and that of these is the whole engine.

use std::pin::Pin;

/// What will answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
