//! Boxed futures of drives. They are compiled here: the code of an `async fn` is compiled where it is
//! awaited, and these contain the whole engine.

use std::pin::Pin;

/// A boxed future.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
