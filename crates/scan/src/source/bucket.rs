//! Buckets as items of a population are read from them.

use std::sync::Arc;

use super::{ReadAt, s3};

impl super::Bucket for s3::Bucket {
    fn name(&self) -> &str {
        s3::Bucket::name(self)
    }

    fn open(self: Arc<Self>, key: &str, tag: &str, bytes: u64) -> Box<dyn ReadAt> {
        Box::new(s3::Object::new(self, key, tag, bytes))
    }
}
