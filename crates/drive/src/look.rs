pub(crate) mod live_sample;
pub(crate) mod status;
pub(crate) mod survey;
