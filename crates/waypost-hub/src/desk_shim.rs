use crate::{
    call::Call, catalog::Catalog, error::CallError, forward, keys::Keys, lifecycle::Tasks,
    member::Member, reply::Reply,
};
use std::future::Future;
use std::sync::Arc;
use waypost_config::config::TaskTimes;
#[derive(Debug)]
pub struct TaskDesk;
impl TaskDesk {
    pub fn new(_: &Keys, _: TaskTimes, _: usize, _: Tasks) -> Self {
        Self
    }
    pub async fn call(
        &self,
        member: &Arc<Member>,
        tool: &str,
        call: Call,
    ) -> Result<Reply, CallError> {
        forward::send(member, call, Some(tool)).await
    }
    pub async fn tasks_method(
        &self,
        _: &Catalog,
        _: Call,
    ) -> Result<(Reply, Option<Arc<Member>>), CallError> {
        Err(CallError::unknown_task())
    }
    pub async fn stateful<F, Fut>(
        &self,
        _: &Arc<Member>,
        call: Call,
        send: F,
    ) -> Result<Reply, CallError>
    where
        F: FnOnce(Call) -> Fut,
        Fut: Future<Output = Result<Reply, CallError>>,
    {
        send(call).await
    }
    pub fn open(&self, _: &Catalog, _: &Call, _: &str) -> Result<(Arc<Member>, String), CallError> {
        Err(CallError::unknown_task())
    }
}
