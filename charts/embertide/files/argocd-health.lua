-- Health of an EmbeddingJob for Argo CD, by the ConfigMap argocd-cm, key
-- resource.customizations.health.embertide.dev_EmbeddingJob. "obj" is the job.

local function condition(status, kind)
  for _, found in ipairs(status.conditions or {}) do
    if found.type == kind then
      return found
    end
  end
  return {}
end

local function progress(status)
  local text = status.phase or "Pending"
  local now = status.progress
  if now ~= nil and now.stage ~= nil then
    text = text .. ": " .. now.stage
    if now.done ~= nil then
      text = text .. " " .. now.done
    end
  end
  local inputs = condition(status, "InputsReady")
  if inputs.status == "False" then
    text = text .. ": " .. inputs.message
  elseif status.phase == "Pending" or status.phase == "Waiting" then
    -- What a job waits for before it has pods: room, or its output.
    return text .. ": " .. (condition(status, "Progressing").message or "not started")
  end
  local ready = condition(status, "WorkersReady")
  if ready.status == "False" and ready.message ~= nil and ready.message ~= "" then
    text = text .. ": " .. ready.message
  end
  return text
end

local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this version of the job yet"}
end
if status.phase == "Succeeded" then
  local output = status.output or {}
  return {status = "Healthy", message = "published version " .. (output.version or "")}
end
if status.phase == "Failed" then
  return {status = "Degraded", message = condition(status, "Failed").message or "failed"}
end
local accepted = condition(status, "Accepted")
if accepted.status == "False" then
  return {status = "Degraded", message = accepted.message or "the job was rejected"}
end
if status.phase == "Suspended" then
  return {status = "Suspended", message = "spec.suspend is true"}
end
return {status = "Progressing", message = progress(status)}
